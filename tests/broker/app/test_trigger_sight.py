"""What metrics and `multilane top` show of triggers that share a group, each by itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from broker.app.conftest import Shop, running
from broker.app.test_sharing import Triggers
from lane_world import until
from multilane.cli import main
from multilane.commit.trigger_positions import Position
from multilane.metrics.observer import Counts

pytestmark = [pytest.mark.broker]
RECORDS = 200


def gauges(triggers: Triggers) -> dict[tuple[str, str], float]:
    """By name and consumer or group, summed over partitions."""
    found: dict[tuple[str, str], float] = {}
    for gauge in triggers.app.engine.gauges():
        key = gauge.name, gauge.labels.get("consumer") or gauge.labels.get("group", "")
        found[key] = found.get(key, 0) + gauge.value
    return found


def named(triggers: Triggers, name: str) -> Position:
    """Of a topic with one partition."""
    found = [text.positions[name] for _, text in triggers.commits().values() if name in text.positions]
    return found[0] if found else Position(-1)


async def top(*arguments: str) -> str:
    command = ["top", "--once", *arguments]
    told = await asyncio.to_thread(CliRunner().invoke, main.app, command, env={"COLUMNS": "40", "TERM": "dumb"})
    assert told.exit_code == 0, told.output + repr(told.exception)
    return told.stdout


def by_name(group: dict[str, Any]) -> dict[str, Any]:
    return {one["trigger"]: one for one in group["triggers"]}


@pytest.fixture
def halved(shop: Shop) -> Triggers:
    """`slow` hangs on one key of forty, so it settles what comes before and beside; `quick` settles everything."""
    shop.fill([f"k{n % 40}" for n in range(RECORDS)], partitions=1)
    triggers = Triggers(shop, ["slow", "quick"], virtualPartitionChanCount=100)
    triggers.hangs["slow"] = asyncio.Event()
    return triggers


async def test_each_trigger_has_its_own_lag_and_the_group_that_of_the_slowest(halved):
    counts = Counts()
    with halved.app.observed_by(counts):
        async with running(halved.app) as task:
            handled = RECORDS - RECORDS // 40
            await until(lambda: len(halved.got["quick"]) == RECORDS or task.done())
            await until(lambda: len(halved.got["slow"]) == handled or task.done())
            await until(lambda: gauges(halved).get(("partition.lag", "quick")) == 0)
            found = gauges(halved)
            assert found["partition.lag", "slow"] == RECORDS - 1
            assert found["scaling.lag", halved.group] == RECORDS - 1
            assert found["scaling.partitions", halved.group] == 1
            assert found["group.triggers", halved.group] == 2
            assert found["group.detached", "quick"] == 0
            assert found["lanes.records.oldest.age", "slow"] > 0
            assert ("lanes.records.oldest.age", "quick") not in found, "it has none"
            assert (found["client.threads", ""], found["client.connections", ""] >= 1) == (1, True)
            received = {name: factory.received for name, factory in halved.app.engine.consumers.items()}
            assert received == {"slow": RECORDS, "quick": RECORDS}
            halved.fails.add("quick")
            halved.hangs["slow"].set()
    failed = {labels for (name, labels) in counts._labelled if name == "lanes.records.failed"}
    assert failed == set(), "nothing failed"


async def test_top_shows_the_lag_of_each_trigger_from_the_brokers_alone(shop, halved):
    async with running(halved.app) as task:
        await until(lambda: len(halved.got["quick"]) == RECORDS or task.done())
        await until(lambda: named(halved, "quick").offset == RECORDS)
        settled = RECORDS - RECORDS // 40 - 1
        await until(lambda: sum(last - first + 1 for first, last in named(halved, "slow").runs) == settled)
        options = ["--stalled-after", "300ms", "--every", "500ms"]
        brokers = ["--group", halved.group, "--bootstrap-server", shop.bootstrap]
        configured = ["--config", str(shop.folder / "slow-quick.yaml")]
        for way in (brokers, configured):
            (group,) = json.loads(await top(*way, *options, "-o", "json"))["groups"]
            assert (group["group"], group["lag"]) == (halved.group, RECORDS - 1)
            triggers = by_name(group)
            assert [(one["trigger"], one["lag"]) for one in group["triggers"]] == [("slow", RECORDS - 1), ("quick", 0)]
            assert triggers["slow"]["settled_beyond"] == settled
            assert (triggers["slow"]["stalled"], triggers["quick"]["stalled"]) == (1, 0)
        lines = (await top(*brokers, *options)).splitlines()
        assert any(f"group {halved.group}, 2 triggers (consumer) Stable" in line for line in lines)
        (slow,) = [line for line in lines if line.startswith("  slow ")]
        assert f"{RECORDS - 1}" in slow
        assert slow.rstrip().endswith(f"s at 1 in {shop.main}/0"), "a pipe gets whole lines"
        (quick,) = [line for line in lines if line.startswith("  quick ")]
        assert quick.rstrip().endswith("up to date")
        halved.hangs["slow"].set()
    absent = Triggers(shop, ["quick"])
    async with running(absent.app) as task:
        await until(lambda: named(absent, "slow").absent_since or task.done())
        (line,) = [one for one in (await top(*brokers)).splitlines() if one.startswith("  slow ")]
        assert "not running since 20" in line


async def test_top_shows_which_trigger_fails_and_why(shop):
    shop.fill([f"k{n % 10}" for n in range(50)])
    retries = {name: shop.make_topic(2) for name in ("bad", "good")}
    own = {name: {"retry": topic, "retryCount": 100_000} for name, topic in retries.items()}
    each = {"retryOrder": "none", "errorBreaker": {"action": "off"}, "retryBackoff": {"delay": "10ms"}}
    triggers = Triggers(shop, ["bad", "good"], **each, **own)
    triggers.fails.add("bad")
    async with running(triggers.app) as task:
        await until(lambda: len(triggers.got["good"]) == 50 or task.done())
        configured = ["--config", str(shop.folder / "bad-good.yaml"), "--every", "500ms"]
        (group,) = json.loads(await top(*configured, "-o", "json"))["groups"]
        failures = {name: one["failures"] for name, one in by_name(group).items()}
        assert failures["bad"]["per_second"] > 0
        assert failures["good"]["per_second"] == 0
        assert failures["bad"]["newest_errors"][0]["error"].startswith("ValueError: always")
        lines = (await top(*configured)).splitlines()
        assert any("FAILING" in line for line in lines if line.startswith("bad + good: group "))
        assert any(line.startswith("    bad: error: ValueError: always") for line in lines)
        assert not any("good: error" in line for line in lines)
