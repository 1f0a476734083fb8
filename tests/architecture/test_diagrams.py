"""The state diagrams in docs/DESIGN.md are those of the tables in the code."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from multilane.client.fetch import cursor
from multilane.client.group.classic import states as classic
from multilane.client.group.consumer_protocol import states as consumer_protocol
from multilane.client.net import connection
from multilane.engines.backfill import states as backfill
from multilane.engines.batches import states as batches
from multilane.engines.continuous import states as spark_member
from multilane.outcome import outage

DESIGN = Path(__file__).parents[2] / "docs" / "DESIGN.md"
TABLES = {
    "cursor": cursor.TRANSITIONS,
    "connection": connection.TRANSITIONS,
    "classic": classic.TRANSITIONS,
    "consumer protocol": consumer_protocol.TRANSITIONS,
    "member on Spark": spark_member.TRANSITIONS,
    "partition lease": batches.LEASE_TRANSITIONS,
    "query in batches": batches.QUERY_TRANSITIONS,
    "backfill": backfill.TRANSITIONS,
    "outage": outage.TRANSITIONS,
}


def drawn(table: Mapping[enum.Enum, frozenset[enum.Enum]]) -> str:
    order = list(table)
    lines = ["stateDiagram-v2"]
    for state, successors in table.items():
        lines += [f"    {state.name} --> {s.name}" for s in sorted(successors, key=order.index)]
        if not successors:
            lines.append(f"    {state.name} --> [*]")
    return "\n".join(lines)


@pytest.mark.parametrize("name", TABLES)
def test_the_diagram_is_the_table(name: str) -> None:
    found = re.search(rf"<!-- diagram: {name} -->\n```mermaid\n(.*?)\n```\n<!-- end -->", DESIGN.read_text(), re.DOTALL)
    assert found is not None, f"docs/DESIGN.md has no diagram of {name}"
    assert found[1] == drawn(TABLES[name])
