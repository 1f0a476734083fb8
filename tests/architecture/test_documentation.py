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


BESIDE_DOCS = [ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "examples/README.md")]
PATH = re.compile(r"(?!\.venv/)[\w.-]+(?:/[\w.-]+)+|[\w-]+\.(?:py|md|sha256)", re.ASCII)


@pytest.mark.parametrize("path", BESIDE_DOCS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_paths_that_are_named_exist(path):
    """Relative to the document, the repository or the package; a name alone is that of any file."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    named = {word for span in re.findall(r"`([^`]+)`", text) for word in span.split() if PATH.fullmatch(word)}
    folders = (path.parent, ROOT, ROOT / "src" / "multilane")
    assert [word for word in sorted(named) if not any(_exists(folder, word) for folder in folders)] == []


def _exists(folder: Path, word: str) -> bool:
    if "/" in word:
        return (folder / word).exists()
    places = [folder] if folder != ROOT else [ROOT / "tests", ROOT / "docs"]
    return any(next(place.rglob(word), None) is not None for place in places)


@pytest.mark.parametrize(
    "path",
    [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", *BESIDE_DOCS],
    ids=lambda p: p.relative_to(ROOT).as_posix(),
)
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(((?!http)[^)#]+)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []
