"""Triggers that share one group member, whose lanes run in the tasks of batches."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter

import pytest

from broker.app.conftest import running
from broker.app.in_batches import in_batches
from broker.app.test_sharing import RECORDS, Triggers
from lane_world import until
from multilane.client.admin.admin import Admin
from multilane.lanes.consumer_overrides import AS_CONFIGURED, ConsumerOverrides
from multilane.metrics.observer import Gauge
from multilane.types import TopicPartition

pytestmark = [pytest.mark.broker]
DETACH = {"records": 20, "time": "10s", "bytes": "16mb"}


def done(task: asyncio.Task[None]) -> bool:
    if task.done():
        task.result()
    return task.done()


@pytest.mark.parametrize("mode", ["same-topic", "cross-topic"])
@pytest.mark.parametrize("tasks", [1, 2])
async def test_every_trigger_gets_every_record_once(shop, mode, tasks):
    """One member, and one read of a partition: all triggers of it are in the same task."""
    shop.fill([f"k{n % 40}" for n in range(RECORDS)])
    triggers = Triggers(shop, ["a", "b", "c"], mode=mode)
    async with in_batches(triggers.app, tasks) as (batches, task):
        await until(lambda: all(len(triggers.got[n]) >= RECORDS for n in "abc") or done(task))
        assert len(batches.coordinator._groups) == 1
        with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
            assert len(admin.describe_groups([triggers.group])[triggers.group].members) == 1
        members = dict(batches.coordinator.members())
        assert members.keys() == set("abc")
        assert len(set(members.values())) == 1
        granted = [{lease.fed for lease in worker.app._active.values()} for worker in batches.workers]
        assert [len(fed) for fed in granted] in ([2 // tasks] * tasks, [0] * tasks)
    await task
    for name in "abc":
        assert len(triggers.got[name]) == len(triggers.handled(name)) == RECORDS
    commits = triggers.commits()
    assert sum(offset for offset, _ in commits.values()) == RECORDS
    for offset, text in commits.values():
        assert {name: position.offset for name, position in text.positions.items()} == dict.fromkeys("abc", offset)


async def test_a_hung_trigger_holds_the_commit_and_nobody_else(shop):
    """Beyond its lease, too. What it left behind is carried over, and a restart repeats nothing."""
    shop.fill([f"k{n % 40}" for n in range(RECORDS)], partitions=1)
    triggers = Triggers(shop, ["slow", "quick"], virtualPartitionChanCount=1, detachAfter=DETACH)
    triggers.hangs["slow"] = asyncio.Event()
    async with in_batches(triggers.app) as (batches, task):
        await until(lambda: len(triggers.got["quick"]) == RECORDS or done(task))
        await until(lambda: batches.batches > 2 or done(task))
        shop.fill([f"k{n % 40}" for n in range(RECORDS)], topic=shop.main)
        await until(lambda: len(triggers.got["quick"]) == 2 * RECORDS or done(task))
        await until(lambda: any(text.positions for _, text in triggers.commits().values()))
        ((offset, _),) = triggers.commits().values()
        assert offset == 1, "the first record of k1 is not settled"
        await until(lambda: next(iter(triggers.commits().values()))[1].positions["quick"].offset == 2 * RECORDS)
        await until(lambda: _gauge(batches.coordinator.gauges(), "scaling.lag") == [2 * RECORDS - 1])
        assert _gauge(batches.coordinator.gauges(), "group.triggers") == [2]
        assert _gauge(batches.coordinator.gauges(), "scaling.partitions") == [1]
        ages = [age for worker in batches.workers for age in _gauge(worker.app.gauges(), "lanes.records.oldest.age")]
        assert ages
    assert len(triggers.got["quick"]) == 2 * RECORDS
    before = set(triggers.got["slow"])
    again = Triggers(shop, ["slow", "quick"], virtualPartitionChanCount=1, detachAfter=DETACH)
    async with in_batches(again.app) as (_, task):
        await until(lambda: len(before | again.handled("slow")) == 2 * RECORDS or done(task))
        await until(lambda: next(iter(again.commits().values()))[0] == 2 * RECORDS)
        shop.fill(["new"], topic=shop.main)
        await until(lambda: len(again.got["quick"]) == 1 or done(task))
    await task
    assert again.got["quick"] == [(shop.main, 0, 2 * RECORDS)]
    assert before.isdisjoint(again.got["slow"])
    assert len(again.got["slow"]) == len(again.handled("slow"))


async def test_the_app_goes_on_on_the_other_engine_and_back(shop):
    """The commit has the same form: nobody repeats anything, although one is behind."""
    shop.fill([f"k{n % 40}" for n in range(RECORDS)], partitions=2)
    apps = []

    def app() -> Triggers:
        apps.append(Triggers(shop, ["slow", "quick"], detachAfter=DETACH))
        return apps[-1]

    def everything(name: str) -> list[tuple[str, int, int]]:
        return [place for each in apps for place in each.got[name]]

    first = app()
    first.hangs["slow"] = asyncio.Event()
    async with running(first.app) as task:
        await until(lambda: len(everything("quick")) == RECORDS or done(task))
    second = app()
    second.hangs["slow"] = asyncio.Event()
    shop.fill([f"k{n % 40}" for n in range(RECORDS)], topic=shop.main)
    async with in_batches(second.app) as (_, task):
        await until(lambda: len(everything("quick")) == 2 * RECORDS or done(task))
    third = app()
    async with running(third.app) as task:
        await until(lambda: len(set(everything("slow"))) == 2 * RECORDS or done(task))
    for name in ("slow", "quick"):
        assert len(everything(name)) == len(set(everything(name))) == 2 * RECORDS


@pytest.mark.parametrize("order", ["none", "key"])
async def test_each_trigger_has_its_own_retries(shop, order):
    shop.fill([f"k{n % 10}" for n in range(100)])
    retries = {name: shop.make_topic(2) for name in ("bad", "good")}
    own = {name: {"retry": topic, "retryCount": 3, "retryOrder": order} for name, topic in retries.items()}
    triggers = Triggers(shop, ["bad", "good"], errorBreaker={"action": "off"}, **own)
    triggers.fails.add("bad")
    async with in_batches(triggers.app, 2) as (_, task):
        await until(lambda: len(triggers.got["good"]) == 100 or done(task))
        triggers.fails.clear()
        await until(lambda: len(triggers.handled("bad")) >= 100 or done(task))
    await task
    assert triggers.handled("good") == triggers.handled("good", shop.main)
    assert triggers.handled("bad") == triggers.handled("bad", shop.main) | triggers.handled("bad", retries["bad"])
    assert len(triggers.got["bad"]) == 100


@pytest.mark.parametrize("many", [20, 900])
async def test_a_topic_made_again_is_read_from_its_beginning_by_all(shop, many):
    """Also if the new log is longer than the old one was, and one trigger is behind."""
    shop.fill([f"k{n % 40}" for n in range(RECORDS)], partitions=1)
    triggers = Triggers(shop, ["slow", "quick"], detachAfter=DETACH)
    triggers.hangs["slow"] = asyncio.Event()
    async with in_batches(triggers.app) as (_, task):
        await until(lambda: len(triggers.got["quick"]) == RECORDS or done(task))
        with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
            await asyncio.to_thread(admin.delete_topics, [shop.main])
            await until(lambda: shop.main not in admin.topics(), 40)
            triggers.got.clear()
            triggers.hangs["slow"].set()
            await asyncio.to_thread(admin.create_topics, {shop.main: 1})
        await asyncio.to_thread(shop.fill, [f"new{n}" for n in range(many)], topic=shop.main)
        await until(lambda: {p[2] for p in triggers.got["quick"]} >= set(range(many)) or done(task), 60)
        await until(lambda: {p[2] for p in triggers.got["slow"]} >= set(range(many)) or done(task), 60)
        partition = TopicPartition(shop.main, 0)
        await until(lambda: triggers.commits().get(partition, (0,))[0] == many or done(task), 60)
    await task


async def test_a_worker_that_dies_loses_nothing_of_any_trigger(shop):
    """What it had not reported is handled again, by whoever it was."""
    shop.fill([f"k{n % 40}" for n in range(4 * RECORDS)], partitions=2)
    triggers = Triggers(shop, ["slow", "quick"], detachAfter=DETACH)
    triggers.hangs["slow"] = asyncio.Event()
    async with in_batches(triggers.app, seconds=3.0) as (batches, task):
        await until(lambda: len(triggers.got["quick"]) > RECORDS or done(task))
        await batches.replace(batches.workers[0])
        await until(lambda: len(triggers.handled("quick")) == 4 * RECORDS or done(task))
        triggers.hangs["slow"].set()
        await until(lambda: len(triggers.handled("slow")) == 4 * RECORDS or done(task))
        await until(lambda: sum(offset for offset, _ in triggers.commits().values()) == 4 * RECORDS)
    await task


async def test_a_trigger_that_is_paused_stops_alone(shop):
    shop.fill([f"k{n % 40}" for n in range(RECORDS)], partitions=1)
    triggers = Triggers(shop, ["paused", "quick"], detachAfter=DETACH)
    async with in_batches(triggers.app) as (batches, task):
        await until(lambda: batches.workers or done(task))
        batches.workers[0].app.apply_overrides("paused", ConsumerOverrides(is_paused=True))
        handled = len(triggers.got["paused"])  # it may have begun
        await until(lambda: len(triggers.got["quick"]) == RECORDS or done(task))
        await until(lambda: batches.batches > 1 or done(task))
        assert len(triggers.got["paused"]) <= handled + 64
        batches.workers[0].app.apply_overrides("paused", AS_CONFIGURED)
        await until(lambda: len(triggers.got["paused"]) == RECORDS or done(task))
    await task
    assert len(triggers.got["quick"]) == RECORDS


@pytest.mark.slow
@pytest.mark.long
async def test_the_audit_proves_each_trigger_by_itself(shop):
    """Also one whose records are all dead, beside one that holds the commit."""
    shop.fill([f"k{n % 40}" for n in range(RECORDS)], partitions=2)
    error = shop.make_topic(1)
    own = {name: {"audit": str(shop.folder / name), "error": error} for name in ("bad", "hung", "good")}
    triggers = Triggers(shop, ["bad", "hung", "good"], errorBreaker={"action": "off"}, **own)
    triggers.fails.add("bad")
    triggers.hangs["hung"] = asyncio.Event()
    async with in_batches(triggers.app, 2) as (batches, task):
        await until(lambda: len(triggers.got["good"]) == RECORDS or done(task))
        await until(lambda: batches.batches > 2 or done(task))
        failed = {"bad": RECORDS, "good": RECORDS}
        await until(lambda: failed.items() <= _positions(triggers).items() or done(task))
    await task
    config = str(shop.folder / "bad-hung-good.yaml")

    def audited(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "multilane", "audit", name, "--config", config, "--master", "local[1]"]
        return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)

    good, bad, hung = [await asyncio.to_thread(audited, name) for name in ("good", "bad", "hung")]
    assert good.returncode == 0, good.stdout + good.stderr
    assert f"Proved: {RECORDS} read = {RECORDS} done" in good.stdout
    assert f"{RECORDS} read = 0 done + 0 skipped + 0 retried + {RECORDS} dead" in bad.stdout, bad.stdout
    assert "offsets beyond the commit were not judged" in hung.stdout, "it is judged up to its own position"
    assert f"{RECORDS} read" not in hung.stdout


def _gauge(gauges: list[Gauge], name: str) -> list[float]:
    return [gauge.value for gauge in gauges if gauge.name == name]


def _positions(triggers: Triggers) -> Counter[str]:
    """How many records each has settled, as the commits say."""
    found: Counter[str] = Counter()
    for _, text in triggers.commits().values():
        for name, position in text.positions.items():
            found[name] += position.offset + sum(last - first + 1 for first, last in position.runs)
    return found
