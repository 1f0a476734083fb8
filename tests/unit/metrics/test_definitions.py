"""Components report what is defined, with the labels that are defined; the documentation has all of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import metrics_table
from multilane.lanes import progress
from multilane.listeners import call_timer
from multilane.metrics.definitions import BY_NAME, METRICS, MetricKind

SOURCE = Path(__file__).parents[3] / "src" / "multilane"
# Names that are no literals where they are counted.
BY_CONSTANT = {
    call_timer.DURATION,
    progress.RECEIVED,
    progress.SETTLED,
    progress.RETRIED,
    progress.REPEATED,
    progress.DEAD,
    progress.FOLLOWED,
}
ELSEWHERE = {"connection.opened", "login.renewed"} | BY_CONSTANT


def reported() -> Iterator[tuple[str, str, frozenset[str]]]:
    """(where, name, labels) of every `observer.count("...", ...)`, `.duration(...)` and `Gauge("...", ...)` in the
    source. The labels of gauges are in a test of their own."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.args[0] if isinstance(node, ast.Call) and node.args else None
            if not isinstance(node, ast.Call) or not isinstance(name, ast.Constant):
                continue
            called = ast.unparse(node.func)
            if called == "Gauge":
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", str(name.value), frozenset()
            elif "bserver" in called and called.endswith((".count", ".duration")):
                labels = frozenset(keyword.arg or "**" for keyword in node.keywords)
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", str(name.value), labels


def test_what_is_reported_is_defined():
    found = list(reported())
    assert len(found) > 30
    assert [(where, name) for where, name, _ in found if name not in BY_NAME] == []


def test_with_the_labels_that_are_defined():
    wrong = [
        (where, name, set(labels) ^ set(BY_NAME[name].labels))
        for where, name, labels in reported()
        if name in BY_NAME and not labels <= set(BY_NAME[name].labels)
    ]
    assert wrong == []


def test_what_is_defined_is_reported():
    names = {name for _, name, _ in reported()} | ELSEWHERE
    spark = {name for name in BY_NAME if name.startswith("spark.query.")}
    assert set(BY_NAME) - names - spark == set()


def test_names_are_unique_and_sentences_end():
    assert len(BY_NAME) == len(METRICS)
    assert all(metric.help.endswith(".") and metric.kind in MetricKind for metric in METRICS)


def test_the_documentation_has_the_table():
    page = metrics_table.PAGE.read_text()
    assert page == metrics_table.with_table(page), "docs/metrics.md is not up to date. Run `make map`"
