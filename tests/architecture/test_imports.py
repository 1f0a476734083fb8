"""The import order, the purity of pure modules, and what `import multilane` costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "multilane"
MODULES = sorted(SOURCE.rglob("*.py"))
IMPURE = {"socket", "threading", "asyncio", "time", "ssl", "selectors", "multiprocessing", "subprocess"}
HEAVY = ("numba", "pyarrow", "numpy", "kio", "cramjam", "google_crc32c", "confluent_kafka", "pyspark", "cryptography")


def imported(path: Path) -> set[str]:
    """Top-level names of what a module imports, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(told.stdout.split())


def relative(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def test_import_contracts_hold():
    program = Path(sys.executable).with_name("lint-imports")
    told = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("statement", ["import multilane", "import multilane.cli.main"])
def test_importing_loads_nothing_heavy(statement):
    loaded = loaded_by(statement)
    assert "multilane" in loaded
    assert not loaded.intersection(HEAVY)


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_modules_that_say_pure_are_pure(path):
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    if "Thread: none (pure" in doc:
        assert not imported(path) & IMPURE


def test_some_modules_say_that_they_are_pure():
    assert any("Thread: none (pure" in path.read_text() for path in MODULES)
