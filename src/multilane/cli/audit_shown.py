"""How `multilane audit` shows what it found: a table and sentences for people, plain facts for programs.

Thread: application.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

from multilane.audit.verdict import Tally, total
from multilane.cli.tables import output, show_line, show_table

if TYPE_CHECKING:
    from multilane.runtime.group_audit import GroupAudit
    from multilane.types import TopicPartition

_MOST_PARTITIONS: Final = 24
_COLUMNS: Final = ("read", "done", "skipped", "retried", "dead", "unaccounted", "repeated", "inverted")
_ALWAYS: Final = ("read", "done")
_TITLES: Final = {"unaccounted": "no account", "inverted": "out of order"}


def is_proved(made: GroupAudit, *, exactly_once: bool) -> bool:
    """Nothing is no proof of anything."""
    return bool(made.verdict.total.read) and not _holes(made) and made.verdict.holds(exactly_once=exactly_once)


def _holes(made: GroupAudit) -> list[str]:
    """Partitions of which something is settled and nothing is written."""
    return [str(partition) for partition, span in sorted(made.spans.items()) if span.is_hole]


def show(made: GroupAudit, *, exactly_once: bool = False, console: Console | None = None) -> None:
    console = console or output()
    show_table(console, _table(made))
    for line in _findings(made):
        show_line(console, f"! {line}")
    for line in _limits(made):
        show_line(console, line, "dim")
    show_line(console, sentence(made, exactly_once=exactly_once), "bold")


def sentence(made: GroupAudit, *, exactly_once: bool = False) -> str:
    """The verdict."""
    found = made.verdict.total
    if not found.read:
        return f"Group {made.group}: nothing could be judged."
    sums = f"{found.done:,} done + {found.skipped:,} skipped + {found.retried:,} retried + {found.dead:,} dead"
    if found.unaccounted:
        return f"NOT PROVED: {found.read:,} read, but {sums}: {found.unaccounted:,} records have no account."
    said = f"{found.read:,} read = {sums}"
    if holes := _holes(made):
        return f"NOT PROVED: {said}, but nothing was written of {', '.join(holes)}."
    if found.inverted:
        return f"NOT PROVED: {said}, but {found.inverted:,} were handled before one of their key that came first."
    if exactly_once and found.repeated:
        return f"NOT PROVED: {said}, but {found.repeated:,} have more than one account."
    order = "" if made.order.by is None else f", in order per {made.order.by}"
    again = f"; {found.repeated:,} were handled more than once" if found.repeated else ", each once"
    return f"Proved: {said}{order}{again}."


def facts(made: GroupAudit, *, exactly_once: bool = False) -> dict[str, Any]:
    verdict = made.verdict
    return {
        "group": made.group,
        "topics": list(made.topics),
        "proved": is_proved(made, exactly_once=exactly_once),
        "verdict": sentence(made, exactly_once=exactly_once),
        "order": {"by": made.order.by, "why": made.order.why},
        "total": _numbers(verdict.total),
        "partitions": [
            {"topic": p.topic, "partition": p.partition, "start": span.start, "end": span.end, "expired": span.expired}
            | {"why": span.why}
            | _numbers(verdict.tallies.get(p, Tally()))
            for p, span in sorted(made.spans.items())
        ],
        "examples": {
            "unaccounted": [_placed(one) for one in verdict.unaccounted],
            "repeated": [_placed(one) for one in verdict.repeated],
            "inverted": [_placed(one) for one in verdict.inverted],
        },
    }


def _numbers(tally: Tally) -> dict[str, int]:
    return {name: getattr(tally, name) for name in (*_COLUMNS, "gone")}


def _placed(finding: Any) -> dict[str, Any]:
    rest = asdict(finding)
    rest.pop("partition")
    return {"topic": finding.partition.topic, "partition": finding.partition.partition, **rest}


def _table(made: GroupAudit) -> Table:
    """Without columns that have nothing in them."""
    table = Table(title=f"group {made.group}", title_justify="left", show_footer=True)
    everything = made.verdict.total
    columns = [name for name in _COLUMNS if name in _ALWAYS or getattr(everything, name)]
    table.add_column("partition", footer="all", no_wrap=True)
    for name in columns:
        table.add_column(_TITLES.get(name, name), f"{getattr(everything, name):,}", justify="right", no_wrap=True)
    for name, tally in _rows(made):
        table.add_row(name, *(f"{getattr(tally, column):,}" for column in columns))
    return table


def _rows(made: GroupAudit) -> Iterator[tuple[str, Tally]]:
    """Each partition, or each topic where there are too many; those with findings first."""
    tallies = made.verdict.tallies
    if len(tallies) > _MOST_PARTITIONS:
        for topic in made.topics:
            yield topic, total(tally for p, tally in tallies.items() if p.topic == topic)
        return

    def findings(partition: TopicPartition) -> int:
        return -(tallies[partition].unaccounted + tallies[partition].inverted)

    for partition in sorted(sorted(tallies), key=findings):
        yield f"{partition.topic}-{partition.partition}", tallies[partition]


def _findings(made: GroupAudit) -> Iterator[str]:
    verdict, found = made.verdict, made.verdict.total
    for one in verdict.unaccounted:
        yield f"{one.partition}@{one.offset} has no account"
    for two in verdict.inverted:
        yield f"{two.partition}@{two.offset} was handled before {two.behind} of the same key"
    for three in verdict.repeated:
        yield f"{three.partition}@{three.offset} has {three.times} accounts, the last is {three.outcome}"
    for many, named, what in (
        (found.unaccounted, verdict.unaccounted, "without an account"),
        (found.inverted, verdict.inverted, "out of order"),
        (found.repeated, verdict.repeated, "with more than one account"),
    ):
        if many > len(named):
            yield f"and {many - len(named):,} more {what} (--examples names more)"


def _limits(made: GroupAudit) -> Iterator[str]:
    """What was not judged, and why."""
    for partition, span in sorted(made.spans.items()):
        if span.why:
            yield f"{partition} was not judged: {span.why}"
        elif span.expired:
            yield f"{partition}: {span.expired:,} offsets before {span.start} are gone from the log, and not judged"
    if made.order.by is None:
        yield f"order was not judged: {made.order.why}"
    gone = made.verdict.total.gone
    if gone:
        yield f"{gone:,} accounts are of records that are not in the log any more"
