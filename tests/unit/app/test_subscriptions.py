"""Listeners that come and go, without a run and on Spark. With a run: tests/broker/app/test_triggers_come_and_go.py."""

from __future__ import annotations

import pytest

from multilane.app.app import App
from multilane.errors import ConfigError
from multilane.wire.records.record import Record

YAML = """
clusters: {main: {clientId: c, brokers: 'h:1'}}
consumers:
  a: {groupId: g, name: t, cluster: main, sharing: same-topic}
  b: {groupId: g, name: t, cluster: main, sharing: same-topic}
  alone: {groupId: h, name: t, cluster: main}
"""


async def handle(record: Record) -> None:
    raise AssertionError(record)


@pytest.fixture
def app(tmp_path):
    path = tmp_path / "multilane.yaml"
    path.write_text(YAML)
    return App(path)


def test_without_a_run_it_registers_for_the_next_one(app):
    app.subscribe("A", handle).result(0)
    app.subscribe("b", handle, begin="earliest").result(0)
    assert app.consumers == ("a", "b")
    assert app.registration("b").config.begin == "earliest"
    app.unsubscribe("a").result(0)
    assert app.consumers == ("b",)
    assert app.drain(1.0).result(0) == {}


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("alone", {"begin": "latest"}, "begin is for consumers that share"),
        ("a", {"begin": "tomorrow"}, "write earliest, latest, or a time"),
        ("nobody", {}, "has no consumer 'nobody'"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(app, name, options, problem):
    with pytest.raises(ConfigError, match=problem):
        app.subscribe(name, handle, **options)
    assert app.consumers == ()


def test_on_spark_nothing_comes_or_goes(app):
    """Neither on the driver, which runs an engine of its own, nor in a worker, which made lanes from the listeners."""
    app.listener("a")(handle)
    calls = (lambda: app.subscribe("b", handle), lambda: app.unsubscribe("a"), lambda: app.drain(1.0))
    with app.overrides.applied_by(lambda consumer, overrides: None):
        for call in calls:
            with pytest.raises(ConfigError, match="while an application runs on Spark"):
                call()
    app._subscriptions.has_factories = True  # as `lane_factories` does
    for call in calls:
        with pytest.raises(ConfigError, match="while an application runs on Spark"):
            call()
    assert app.consumers == ("a",)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_drain_takes_a_time(app, seconds):
    with pytest.raises(ConfigError, match="give seconds, zero or more"):
        app.drain(seconds)
