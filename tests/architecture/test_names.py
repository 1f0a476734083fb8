"""One word for one thing: no name of a type twice, no retired word, a map of the tree that is up to date."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
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
        "asker", "board", "book", "card", "cards", "conductor", "crew", "crews", "desk", "dialogue", "farewell",
        "foreman", "front", "hands", "haul", "hauls", "helm", "holding", "holdings", "keeper", "keepers", "lookout",
        "muster", "outfit", "outfits", "participant", "plainly", "pulse", "sift", "sight", "stake", "stakes",
        "standing", "stint", "stints", "stranger", "strangers", "stretch", "stretches", "team", "teams", "trail",
        "unproven", "wording", "yard", "yards", "caution", "dialects", "hungry", "voided",
    }
)  # fmt: skip


# And these in all text: code, comments, log lines, documentation.
RETIRED_TEXT = re.compile(
    r"\b(stints?|hauls?|muster|helm|lookout|outfits?|foreman|trickles?|keepers?|borrowers?)\b"
    r"|\bin (its|their) place\b|\bis at (it|them)\b|\bin work\b|\bpassed over\b"
    r"|\bfiles? of old\b(?! versions)|\b(yards?|crews?|teams?|desks?)\b|\btried again\b|\bworks? (them )?off\b"
    r"|\bsession cards?\b|\bunproven\b|\bthe usual way\b|\bthe same rooms\b",
    re.IGNORECASE,
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
RETIRED_IN_TESTS = frozenset({"desk", "desks", "hungry", "team", "teams"})
RETIRED_IN_TEST_NAMES = frozenset({"stranger", "strangers", "told"})
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


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a module, also under `if TYPE_CHECKING`."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Try):
            yield from _statements(statement.body + statement.orelse)
        else:
            yield statement


def _values(path: Path) -> Iterator[tuple[str, ast.expr]]:
    """The names that a module gives to values: aliases of types, constants, type variables."""
    for statement in _statements(ast.parse(path.read_text()).body):
        if isinstance(statement, ast.Assign):
            yield from ((target.id, statement.value) for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            yield statement.target.id, statement.value


def _is_word(name: str) -> bool:
    """`Start`: it is read as the name of a type, and begins with a capital letter. Not `_Start`, which nobody outside
    of its module reads; not `START`, a constant, which says what it is only together with its module; and not `T`, a
    type variable, which means something else in each signature."""
    return name[:1].isupper() and not name.isupper()


def _doubles(modules: list[Path]) -> dict[str, list[str]]:
    homes = defaultdict(list)
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(relative(path))
        for name, _ in _values(path):
            if _is_word(name):
                homes[name].append(relative(path))
    return {name: paths for name, paths in homes.items() if len(paths) > 1}


def _equal_constants(modules: list[Path]) -> dict[str, list[str]]:
    """Two constants of one name and one value are one constant. With different values they are like `main`: each module
    has its own."""
    homes = defaultdict(list)
    for path in modules:
        for name, value in _values(path):
            if name[:1].isupper() and name.isupper() and len(name) > 1:
                homes[f"{name} = {ast.unparse(value)}"].append(relative(path))
    return {constant: paths for constant, paths in homes.items() if len(paths) > 1}


def test_no_class_or_alias_stands_twice():
    assert _doubles(MODULES) == {}


def test_no_public_constant_is_defined_twice():
    assert _equal_constants(MODULES) == {}


def test_doubles_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text(
        "class Start: ...\nOffsets: TypeAlias = list[int]\nINT_MAX: Final = 7\n_Own = int\nT = 1\nSIZE = 1\n"
    )
    other.write_text("Start = int\nif X:\n    Offsets = int\nINT_MAX = 7\n_Own = str\nT = 1\nSIZE = 2\n")
    homes = ["one.py", "other.py"]
    assert _doubles([one, other]) == {"Start": homes, "Offsets": homes}
    assert _equal_constants([one, other]) == {"INT_MAX = 7": homes}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_no_identifier_has_a_retired_word(path):
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    names = {token.string for token in tokens if token.type == tokenize.NAME} | {path.stem}
    assert {name for name in names if parts_of(name) & RETIRED_NAMES} == set()


def test_no_test_has_a_retired_word_in_its_name():
    """Tests are read as the specification. `told` may be a variable there, which the reader sees bound."""
    guilty = []
    for path in TESTS:
        tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        names = {token.string for token in tokens if token.type == tokenize.NAME} | {path.stem}
        tests = {name for name in names if name.startswith("test_") and parts_of(name) & RETIRED_IN_TEST_NAMES}
        old = {name for name in names if parts_of(name) & RETIRED_IN_TESTS} | (tests - {"test_told_is_no_variable"})
        guilty += [f"{relative(path)}: {name}" for name in sorted(old)]
    assert guilty == []


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
