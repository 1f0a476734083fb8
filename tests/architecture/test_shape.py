"""The house style that no linter knows: docstrings, sizes, plain characters, no addresses of machines."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "multilane"
MODULES = sorted(SOURCE.rglob("*.py"))
MODULE_LINES = 400
FUNCTION_LINES = 60


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_module_opens_with_its_role_and_thread(path):
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert doc, "no docstring"
    if path.name != "__init__.py":
        assert "Thread:" in doc, "no `Thread:` line"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_sizes(path):
    text = path.read_text()
    assert text.count("\n") <= MODULE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_plain_characters(path):
    path.read_bytes().decode("ascii")


LOGGERS_OF_OTHERS = {"logs.py", "readiness.py", "spark_options.py", "top.py", "demo.py", "run.py"}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_loggers_escape_foreign_text(path):
    """`multilane.logs.logger`; the modules named here only set up handlers and levels."""
    if path.name not in LOGGERS_OF_OTHERS:
        assert "logging.getLogger(" not in path.read_text()


def test_tests_never_sleep():
    guilty = [relative(path) for path in ROOT.glob("tests/**/*.py") if path != Path(__file__) and _sleeps(path)]
    assert not guilty


def _sleeps(path: Path) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "sleep" for node in ast.walk(ast.parse(path.read_text()))
    )


def test_the_lock_has_hashes_and_no_addresses():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pinned = [line for line in lines if line and not line.startswith((" ", "#", "\t"))]
    assert pinned
    assert all("==" in line for line in pinned)
    assert sum("--hash=sha256:" in line for line in lines) >= len(pinned)
    assert any(line.startswith("pandas==2.") for line in pinned), "PySpark warns of pandas 3 at every start"
    assert not [line for line in lines if "://" in line or "--index" in line or "--find-links" in line]


def test_no_registry_and_no_machine_is_named():
    # Spelled in pieces, so that this file does not name them either.
    banned = ["repo1." + "maven", "pypi" + ".org", "files.python" + "hosted", "/ro" + "ot/", "/wo" + "rk/main"]
    told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    found = []
    for name in filter(None, told.stdout.split("\0")):
        path = ROOT / name
        text = path.read_text(errors="replace") if path.is_file() else ""
        found += [f"{name}: {word}" for word in banned if word in text]
    assert not found
