"""One word for one thing: no class name twice, no retired word, a map of the tree that is up to date."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

import file_map

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "multilane"
MODULES = sorted(SOURCE.rglob("*.py"))
DESIGN = ROOT / "docs" / "DESIGN.md"

# Words of an earlier vocabulary. As parts of an identifier in src they are gone for good.
RETIRED_NAMES = frozenset(
    {
        "board", "book", "conductor", "crew", "crews", "desk", "foreman", "front", "hands", "haul", "hauls", "helm",
        "holding", "keeper", "keepers", "lookout", "muster", "outfit", "outfits", "participant", "sight",
        "stint", "stints", "team", "teams", "trail", "yard", "yards",
    }
)  # fmt: skip


# And these in all text: code, comments, log lines, documentation.
RETIRED_TEXT = re.compile(
    r"\b(stints?|hauls?|muster|helm|lookout|outfits?|foreman|trickles?|keepers?|borrowers?)\b"
    r"|\bin (its|their) place\b|\bis at (it|them)\b|\bin work\b|\bpassed over\b"
    r"|\bfiles? of old\b(?! versions)|\b(yards?|crews?|teams?|desks?)\b|\btried again\b|\bworks? (them )?off\b",
    re.IGNORECASE,
)
COMPILED = {"lz4_kernels.py"}  # names in compiled functions stay: each change compiles them anew on every machine
PAGES = [
    *(ROOT / "docs").rglob("*.md"),
    *ROOT.glob("*.md"),
    ROOT / "bench" / "README.md",
    ROOT / "examples" / "README.md",
]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def parts_of(identifier: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)}


def test_no_class_name_stands_twice():
    homes = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(relative(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_no_identifier_has_a_retired_word(path):
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    names = {token.string for token in tokens if token.type == tokenize.NAME} | {path.stem}
    assert {name for name in names if parts_of(name) & RETIRED_NAMES} == set()


def test_told_is_no_variable():
    """It was bound 139 times, for everything that anybody had said."""
    guilty = [
        relative(path)
        for path in MODULES
        if path.name not in COMPILED
        and any(
            token.type == tokenize.NAME and token.string == "told"
            for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        )
    ]
    assert guilty == []


@pytest.mark.parametrize("path", [*MODULES, *PAGES], ids=relative)
def test_no_text_has_a_retired_word(path):
    assert [found[0] for found in RETIRED_TEXT.finditer(path.read_text())] == []


def test_the_file_map_is_that_of_the_tree():
    page = DESIGN.read_text()
    assert set(file_map.PACKAGES) == {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert page == file_map.with_map(page), "docs/DESIGN.md: the file map is not up to date. Run `make map`"
