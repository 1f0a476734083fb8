"""The public names are a written list: docs/public-api.md, the packages themselves and every example in docs agree."""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("multilane", "multilane.dev", "multilane.spark", "multilane.testing")
PAGE = ROOT / "docs" / "public-api.md"
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "bench" / "README.md"]


def listed(package: str) -> set[str]:
    section = re.search(rf"^## `{re.escape(package)}`\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert section is not None, f"docs/public-api.md has no section for {package}"
    return set(re.findall(r"^\| `(\w+)`", section[1], re.MULTILINE))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_lists_what_a_package_exports(package):
    exported = set(importlib.import_module(package).__all__) - {"__version__"}
    assert listed(package) == exported


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_can_be_imported(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) >= set(dir(module)) or package == "multilane"


def imports_in(page: Path) -> set[tuple[str, str]]:
    """(module, name) of every import of ours in the page's Python examples."""
    found = set()
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        for node in ast.walk(ast.parse(textwrap.dedent(block))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "multilane":
                found |= {(node.module or "", alias.name) for alias in node.names}
            elif isinstance(node, ast.Import):
                found |= {(a.name, "") for a in node.names if a.name.partition(".")[0] == "multilane"}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_import_public_names_only(page):
    private = {
        f"{module}: {name}"
        for module, name in imports_in(page)
        if module not in PACKAGES or (name and name not in importlib.import_module(module).__all__)
    }
    assert private == set()


def test_some_examples_import_ours():
    assert sum(len(imports_in(page)) for page in PAGES) > 20
