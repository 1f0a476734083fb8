"""The file map of docs/DESIGN.md, made from the tree: `python tests/file_map.py` writes it (make map)."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "multilane"
DESIGN = ROOT / "docs" / "DESIGN.md"
HEADING = "## File map\n"
INTRODUCTION = """
Made by `make map`: each module with the first sentence of its docstring. The order is the import order, top to bottom,
which import-linter checks (`pyproject.toml`): a package may import what stands below it.

"""
PACKAGES = (
    "cli", "dev", "testing", "engines", "app", "error_consumer", "runtime", "audit", "spark", "sizing", "group",
    "lanes", "listeners", "outcome", "commit", "client", "registry", "wire", "config", "metrics", "errors",
)  # fmt: skip
COLUMN = 34


def first_sentence(path: Path) -> str:
    paragraph = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
    return re.split(r"(?<=[\w`\")])\. ", " ".join(paragraph.split()))[0].rstrip(".")


def modules_in(package: Path) -> list[Path]:
    return sorted(path for path in package.glob("*.py") if not path.stem.startswith("__"))


def lines_of(package: Path, depth: int = 2) -> Iterator[str]:
    yield line(package.name + "/", first_sentence(package / "__init__.py"), depth)
    for module in modules_in(package):
        yield line(module.stem, first_sentence(module), depth + 1)
    for inner in sorted(path for path in package.iterdir() if (path / "__init__.py").exists()):
        yield from lines_of(inner, depth + 1)


def line(name: str, sentence: str, depth: int) -> str:
    left = "  " * depth + name
    return left.ljust(max(COLUMN, len(left) + 2)) + sentence


def file_map() -> str:
    lines = [text for name in PACKAGES for text in lines_of(SOURCE / name)]
    lines += [line(module.stem, first_sentence(module), 2) for module in modules_in(SOURCE)]
    return HEADING + INTRODUCTION + "\n".join(lines) + "\n"


def with_map(page: str) -> str:
    before, _, rest = page.partition(HEADING)
    _, found, after = rest.partition("\n## ")
    return before + file_map() + found + after


if __name__ == "__main__":
    DESIGN.write_text(with_map(DESIGN.read_text()))
    sys.exit(0)
