"""One word for one thing: no class name twice, no retired word, every module in the map."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "multilane"
MODULES = sorted(SOURCE.rglob("*.py"))
DESIGN = ROOT / "docs" / "DESIGN.md"

# Words of an earlier vocabulary. As parts of an identifier in src they are gone for good.
RETIRED_NAMES = frozenset(
    {
        "crew", "crews", "foreman", "haul", "hauls", "helm", "lookout", "muster", "outfit", "outfits", "stint", "stints",
        "team", "teams", "yard", "yards",
    }
)  # fmt: skip


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


def mapped() -> dict[str, set[str]]:
    """The file map of docs/DESIGN.md: names of modules by their package. The column of names ends at two spaces; a name
    with a slash opens a package, for the lines that are indented more."""
    text = DESIGN.read_text().partition("## File map")[2].partition("\n## ")[0]
    found: dict[str, set[str]] = defaultdict(set)
    packages: list[tuple[int, str]] = [(-1, "")]
    for line in text.splitlines():
        if not line.startswith("    "):
            continue
        indent = len(line) - len(line.lstrip())
        names = re.split(r"\s{2,}", line.strip())[0].split()
        while packages[-1][0] >= indent:
            packages.pop()
        around = packages[-1][1]
        for name in names:
            if name.endswith("/"):
                packages.append((indent, around + name))
            else:
                found[around].add(name)
    return found


@pytest.mark.parametrize("path", [p for p in MODULES if not p.stem.startswith("__")], ids=relative)
def test_a_module_is_in_the_map(path):
    package = str(path.parent.relative_to(SOURCE)).removeprefix(".")
    names = mapped()[f"{package}/" if package else ""]
    assert any(fnmatch(path.stem, name) for name in names), f"docs/DESIGN.md, file map: {package}/ lacks {path.stem}"


def test_the_map_has_no_module_that_is_gone():
    gone = [
        f"{package}{name}"
        for package, names in mapped().items()
        for name in names
        if not list((SOURCE / package).glob(f"{name}.py"))
    ]
    assert gone == []
