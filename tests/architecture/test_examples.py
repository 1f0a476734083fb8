"""The examples are small, listed, and use public names only; their configurations are right."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from multilane import load_app

EXAMPLES = Path(__file__).parents[2] / "examples"
MODULES = sorted(EXAMPLES.rglob("*.py"))
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/main.py"))
LINES = 150


def relative(path: Path) -> str:
    return str(path.relative_to(EXAMPLES))


def imports_of_ours(path: Path) -> list[tuple[str, str]]:
    """(module, name) of each; the name is empty for a plain import."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
    return [(module, name) for module, name in found if module.partition(".")[0] == "multilane"]


def test_there_are_three():
    assert len(FOLDERS) == 3
    assert sum(len(imports_of_ours(path)) for path in MODULES) > 10


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_an_example_uses_public_names_only(path):
    public = {"multilane", "multilane.dev", "multilane.spark", "multilane.testing"}
    for module, name in imports_of_ours(path):
        assert module in public
        assert not name or name in importlib.import_module(module).__all__


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_an_example_is_small_and_plain(path):
    text = path.read_bytes().decode("ascii")
    assert text.count("\n") <= LINES
    assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("folder", FOLDERS, ids=relative)
def test_the_page_has_its_command(folder):
    assert f"| `python examples/{folder.name}/main.py` |" in (EXAMPLES / "README.md").read_text()


@pytest.mark.parametrize("folder", FOLDERS, ids=relative)
def test_a_configuration_is_that_of_the_topics(folder, monkeypatch):
    """What the app reads and writes, the command has created."""
    monkeypatch.setenv("KAFKA_BROKERS", "127.0.0.1:9092")
    config = load_app(folder / "multilane.yaml")
    topics = {topic for one in config.consumers.values() for topic in (one.topic, one.retry, one.error) if topic}
    topics |= {producer.topic for producer in config.producers.values()}
    main = (folder / "main.py").read_text()
    assert topics
    assert [topic for topic in topics if f'"{topic}"' not in main] == []
