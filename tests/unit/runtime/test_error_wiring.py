"""Which error consumers an application has, and whose last step a worn record gets."""

from __future__ import annotations

import json

import pytest

from lane_world import record_of
from multilane.clock import SystemClock
from multilane.errors import GivenUp
from multilane.hooks import NO_OBSERVER
from multilane.runtime.app import App
from multilane.runtime.error_wiring import ErrorConsumers
from multilane.runtime.registration import Around
from multilane.wire.records.record import Record

ERRORS = {"groupId": "shop.error", "cron": "0 0 1 1 *"}


async def handle(record: Record) -> None: ...


def consumer(name: str, cluster: str, error: str) -> dict[str, str]:
    return {"groupId": f"{name}.group", "name": name, "cluster": cluster, "virtualPartitionCount": 2, "error": error}


async def wired(folder, clusters, consumers, steps=None, app_step=None, shovels=None):
    settings = {
        "clusters": {n: {"clientId": "x", "brokers": "localhost:1", "errorConfig": ERRORS} for n in clusters},
        "consumers": {name: consumer(name, cluster, error) for name, (cluster, error) in consumers.items()},
        "errorConsumers": shovels or {},
    }
    path = folder / "multilane.yaml"
    path.write_text(json.dumps(settings))
    app = App(path)
    for name in consumers:
        app.listener(name, around=Around(last_step=(steps or {}).get(name)))(handle)
    errors = ErrorConsumers(app.config, app._registrations, Around(last_step=app_step), SystemClock(), NO_OBSERVER)
    await errors.start()
    return errors


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
