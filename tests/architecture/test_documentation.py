"""What the documentation names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs" / "partition-scaler.md").read_text())))


def test_there_is_something_to_look_at():
    assert len(NAMED) > 40


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_test_that_is_named_exists(path, name):
    assert re.search(rf"def {name}\(", (ROOT / "tests" / path).read_text())


@pytest.mark.parametrize("path", [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"], ids=lambda p: p.name)
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(((?!http)[^)#]+)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []
