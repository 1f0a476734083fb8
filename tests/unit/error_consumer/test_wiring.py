"""Which error consumers an application has, and whose last step a worn record gets."""

from __future__ import annotations

import asyncio
import inspect
import json

import pytest

from lane_world import record_of
from multilane.app.app import App
from multilane.clock import SystemClock
from multilane.error_consumer.wiring import ErrorConsumers
from multilane.errors import GivenUp
from multilane.metrics.observer import NO_OBSERVER
from multilane.runtime.registration import Interceptors
from multilane.wire.records.record import Record

ERRORS = {"groupId": "shop.error", "cron": "0 0 1 1 *"}


async def handle(record: Record) -> None: ...


def consumer(name: str, cluster: str, error: str, topic: str | None) -> dict[str, object]:
    own = {"groupId": f"{name}.group", "name": topic or name, "cluster": cluster, "error": error}
    return {**own, "virtualPartitionCount": 2}


async def wired(folder, clusters, consumers, steps=None, app_step=None, **more):
    """`more`: shovels, the names of those that are registered, error functions by name, one topic for all."""
    errors, registered = more.get("errors", {}), more.get("registered", consumers)
    settings = {
        "clusters": {n: {"clientId": "x", "brokers": "localhost:1", "errorConfig": ERRORS} for n in clusters},
        "consumers": {n: consumer(n, cluster, error, more.get("topic")) for n, (cluster, error) in consumers.items()},
        "errorConsumers": more.get("shovels", {}),
    }
    path = folder / "multilane.yaml"
    path.write_text(json.dumps(settings))
    app = App(path)
    for name in registered:
        own = {"interceptors": Interceptors(last_step=(steps or {}).get(name)), "error": errors.get(name)}
        app.listener(name, **own)(handle)
    made = ErrorConsumers(app.config, app._registrations, Interceptors(last_step=app_step), SystemClock(), NO_OBSERVER)
    await made.start()
    return made


async def test_clusters_may_have_error_groups_of_one_name(tmp_path):
    """The second took the place of the first, whose error topics nobody read."""
    shovels = {"s": {**ERRORS, "topics": ["old.error"], "maxErrorCount": 1, "cluster": "east"}}
    consumers = {"orders": ("east", "orders.error"), "bills": ("west", "bills.error")}
    errors = await wired(tmp_path, ["east", "west"], consumers, shovels=shovels)
    try:
        assert [list(c._rules.topics) for c in errors.consumers] == [["orders.error"], ["bills.error"], ["old.error"]]
    finally:
        await errors.stop()


def first(context, record, error):
    return "first"


def second(context, record, error):
    return "second"


def of_app(context, record, error):
    return "app's"


@pytest.mark.parametrize(
    ("steps", "app_step", "said"),
    [
        ({}, None, [None, None]),
        ({"orders": first}, None, ["first", None]),
        ({"orders": first}, of_app, ["first", "app's"]),
        ({"bills": first, "stock": first}, None, [None, "first"]),
        ({"bills": first, "stock": second}, of_app, ["app's", "app's"]),
        ({"bills": first, "stock": second}, None, [None, GivenUp]),
        ({"bills": first}, None, [None, GivenUp]),
    ],
)
async def test_whose_last_step_a_worn_record_gets(tmp_path, steps, app_step, said):
    """Where another consumer had a last step, a worn record of one without stopped its partition for good."""
    consumers = {"orders": ("main", "orders.error"), "bills": ("main", "shared"), "stock": ("main", "shared")}
    errors = await wired(tmp_path, ["main"], consumers, steps, app_step)
    try:
        (made,) = errors.consumers
        for topic, expected in zip(("orders.error", "shared"), said, strict=True):
            step = made._steps.last_steps.get(topic)
            if expected is GivenUp:
                assert step is not None
                with pytest.raises(GivenUp, match="different last steps"):
                    step(record_of("a", 0, topic), "worn")
            else:
                assert (None if step is None else step(record_of("a", 0, topic), "worn")) == expected
    finally:
        await errors.stop()


async def test_targets_are_those_of_the_configuration_whatever_runs_here(tmp_path):
    """Records of a consumer that another process runs were kept, or given to the only one that this process knew."""
    consumers = {"orders": ("main", "shared"), "bills": ("main", "shared"), "stock": ("west", "west.error")}
    shovels = {"s": {**ERRORS, "topics": ["old.error"], "maxErrorCount": 1, "cluster": "main"}}
    errors = await wired(tmp_path, ["main", "west"], consumers, shovels=shovels, registered=["orders"])
    try:
        of_cluster, shovel = errors.consumers
        assert list(of_cluster._rules.topics) == ["shared"], "what nobody here is registered for is not read"
        assert of_cluster._rules.topics["shared"].targets == {"orders", "bills"}
        assert of_cluster._rules.topics["shared"].default is None
        assert shovel._rules.topics["old.error"].targets == {"orders", "bills"}, "of its own cluster"
    finally:
        await errors.stop()


async def of_mine(record: Record) -> None: ...


async def test_groups_with_the_same_topics_are_distinguished(tmp_path):
    """The last one registered counted alone: the error function of the other was never called."""
    consumers = {"orders": ("main", "shared"), "again": ("main", "shared")}
    errors = await wired(tmp_path, ["main"], consumers, errors={"orders": of_mine}, topic="orders")
    try:
        (made,) = errors.consumers
        assert list(made._steps.handlers.values()) == [of_mine]
        topic = made._rules.topics["shared"]
        assert len(topic.owners["orders"]) == 2
        assert topic.sole is None
    finally:
        await errors.stop()


async def slow(context, record, error):
    await asyncio.Event().wait()


async def test_a_last_step_that_takes_too_long_is_cancelled(tmp_path):
    errors = await wired(tmp_path, ["main"], {"orders": ("main", "orders.error")}, {"orders": slow})
    try:
        step = errors.consumers[0]._steps.last_steps["orders.error"]
        assert inspect.iscoroutinefunction(step), "only such a one can be"
    finally:
        await errors.stop()
