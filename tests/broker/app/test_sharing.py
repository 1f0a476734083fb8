"""Triggers that share one consumer: each gets every record, and none holds up another."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from broker.app.conftest import Shop, running
from broker.app.in_batches import batched
from lane_world import until
from multilane.app.app import App
from multilane.cli import main
from multilane.client.admin.admin import Admin
from multilane.commit import completion_map
from multilane.errors import ConfigProblems
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]
RECORDS = 400


class Triggers:
    """An app of triggers on one topic, and what each of them has handled."""

    def __init__(self, shop: Shop, names: list[str], *, mode: str = "same-topic", **settings: Any) -> None:
        each = {
            "groupId": f"{shop.main}.group",
            "name": shop.main,
            "cluster": "main",
            "virtualPartitionCount": 8,
            "offsetInitial": "oldest",
            "commitInterval": "100ms",
            "retryBackoff": {"delay": "0s"},
            "rebalanceTimeout": "4s",
            "sharing": mode,
        }
        own = {name: {**each, **settings.pop(name, {})} for name in names}
        cluster = {"clientId": "test", "brokers": shop.bootstrap}
        path = shop.folder / f"{'-'.join(names)}.yaml"
        path.write_text(
            json.dumps({"clusters": {"main": cluster}, "consumers": {n: {**c, **settings} for n, c in own.items()}})
        )
        self.app = App(path)
        self.group = f"{shop.main}.group"
        self.bootstrap = shop.bootstrap
        self.got: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
        self.hangs: dict[str, asyncio.Event] = {}
        self.fails: set[str] = set()
        for name in names:

            @self.app.listener(name)
            async def handle(record: Record, name: str = name) -> None:
                if name in self.hangs and record.key == b"k1":
                    await self.hangs[name].wait()
                if name in self.fails:
                    raise ValueError("always")
                self.got[name].append((record.topic, record.partition, record.offset))

    def handled(self, name: str, topic: str | None = None) -> set[tuple[str, int, int]]:
        return {place for place in self.got[name] if topic is None or place[0] == topic}

    def commits(self) -> dict[TopicPartition, tuple[int, completion_map.CompletionMap]]:
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            found = admin.group_offsets(self.group)
        return {p: (at.offset, completion_map.read(at.metadata, at.offset)) for p, at in found.items()}


@pytest.mark.parametrize("mode", ["same-topic", "cross-topic"])
async def test_every_trigger_gets_every_record_once(shop, mode):
    shop.fill([f"k{n % 40}" for n in range(RECORDS)])
    triggers = Triggers(shop, ["a", "b", "c"], mode=mode)
    async with running(triggers.app) as task:
        await until(lambda: all(len(triggers.got[n]) >= RECORDS for n in "abc") or task.done())
        assert len(triggers.app.engine.groups) == 1
    await task
    for name in "abc":
        assert len(triggers.got[name]) == len(triggers.handled(name)) == RECORDS
    commits = triggers.commits()
    assert sum(offset for offset, _ in commits.values()) == RECORDS
    for offset, text in commits.values():
        assert {name: position.offset for name, position in text.positions.items()} == dict.fromkeys("abc", offset)


async def test_a_hung_trigger_holds_the_commit_and_nobody_else(shop):
    """It is detached, goes on by itself, and shares again when it has caught up. A restart repeats nothing."""
    shop.fill([f"k{n % 40}" for n in range(RECORDS)], partitions=1)
    detach = {"records": 20, "time": "10s", "bytes": "16mb"}
    triggers = Triggers(shop, ["slow", "quick"], virtualPartitionChanCount=1, detachAfter=detach)
    triggers.hangs["slow"] = asyncio.Event()
    async with running(triggers.app) as task:
        await until(lambda: len(triggers.got["quick"]) == RECORDS or task.done())
        shop.fill([f"k{n % 40}" for n in range(RECORDS)], topic=shop.main)
        await until(lambda: len(triggers.got["quick"]) == 2 * RECORDS or task.done())
        await until(lambda: any(text.positions for _, text in triggers.commits().values()))
        ((offset, _),) = triggers.commits().values()
        assert offset == 1, "the first record of k1 is not settled"
        await until(lambda: next(iter(triggers.commits().values()))[1].positions["quick"].offset == 2 * RECORDS)
    assert len(triggers.got["quick"]) == 2 * RECORDS
    before = set(triggers.got["slow"])
    again = Triggers(shop, ["slow", "quick"], virtualPartitionChanCount=1, detachAfter=detach)
    async with running(again.app) as task:
        await until(lambda: len(before | again.handled("slow")) == 2 * RECORDS or task.done())
        await until(lambda: next(iter(again.commits().values()))[0] == 2 * RECORDS)
        shop.fill(["new"], topic=shop.main)
        await until(lambda: len(again.got["quick"]) == 1 or task.done())
    await task
    assert again.got["quick"] == [(shop.main, 0, 2 * RECORDS)]
    assert before.isdisjoint(again.got["slow"])
    assert len(again.got["slow"]) == len(again.handled("slow"))


async def test_each_trigger_has_its_own_retries(shop):
    """`retryOrder: key` pairs a trigger with its own retry topic, not with the other's."""
    shop.fill([f"k{n % 10}" for n in range(100)])
    retries = {name: shop.make_topic(2) for name in ("bad", "good")}
    own = {name: {"retry": topic, "retryCount": 3} for name, topic in retries.items()}
    triggers = Triggers(shop, ["bad", "good"], errorBreaker={"action": "off"}, **own)
    triggers.fails.add("bad")
    async with running(triggers.app) as task:
        await until(lambda: len(triggers.got["good"]) == 100 or task.done())
        await until(lambda: triggers.app.engine.consumers["bad"].settled >= 100, 60)  # all in its retry topic
        triggers.fails.clear()
        await until(lambda: len(triggers.got["bad"]) == 100 or task.done())
    await task
    assert triggers.handled("good") == triggers.handled("good", shop.main)
    assert triggers.handled("bad") == triggers.handled("bad", shop.main) | triggers.handled("bad", retries["bad"])


@pytest.mark.parametrize("run", [running, batched])
async def test_commits_wait_for_a_trigger_that_is_absent(shop, run):
    """A deployment without it handles nothing for it, so its records may not be committed past."""
    shop.fill([f"k{n % 10}" for n in range(100)], partitions=1)
    both = Triggers(shop, ["a", "b"])
    async with run(both.app) as task:
        await until(lambda: all(len(both.got[n]) == 100 for n in "ab") or task.done())
    await task
    shop.fill(["x"] * 50, topic=shop.main)
    alone = Triggers(shop, ["a"])
    async with run(alone.app) as task:
        await until(lambda: len(alone.got["a"]) == 50 or task.done())
        await until(lambda: next(iter(alone.commits().values()))[1].positions["a"].offset == 150)
    await task
    ((offset, text),) = alone.commits().values()
    assert offset == text.positions["b"].offset == 100
    assert text.positions["b"].absent_since is not None
    returned = Triggers(shop, ["a", "b"])
    async with run(returned.app) as task:
        await until(lambda: len(returned.got["b"]) == 50 or task.done())
        await until(lambda: next(iter(returned.commits().values()))[0] == 150)
    await task
    assert returned.got["a"] == []


@pytest.mark.parametrize("run", [running, batched])
async def test_a_trigger_that_was_given_up_catches_up_by_itself(shop, run):
    """After `absentAfter` commits go on; it returns to its named position, and the commit never moves back."""
    shop.fill([f"k{n % 10}" for n in range(100)], partitions=1)
    both = Triggers(shop, ["a", "b"])
    async with run(both.app) as task:
        await until(lambda: all(len(both.got[n]) == 100 for n in "ab") or task.done())
    await task
    shop.fill(["x"] * 50, topic=shop.main)
    alone = Triggers(shop, ["a"], absentAfter="1ms")
    async with run(alone.app) as task:
        await until(lambda: next(iter(alone.commits().values()))[0] == 150 or task.done())
    await task
    returned = Triggers(shop, ["a", "b"])
    async with run(returned.app) as task:
        await until(lambda: len(returned.got["b"]) == 50 or task.done())
        await until(lambda: next(iter(returned.commits().values()))[1].positions["b"].offset == 150)
        shop.fill(["y"] * 10, topic=shop.main)
        await until(lambda: len(returned.got["a"]) == 10 or task.done())
        await until(lambda: len(returned.got["b"]) == 60 or task.done())
    await task
    assert next(iter(returned.commits().values()))[0] == 160
    assert len(returned.handled("b")) == 60


def test_two_readers_of_a_topic_have_to_say_whether_they_share(shop):
    shop.fill(["a"])
    with pytest.raises(ConfigProblems, match="write sharing: same-topic for both"):
        Triggers(shop, ["a", "b"], sharing=None)


async def test_a_renamed_trigger_keeps_its_position_and_a_forgotten_one_holds_nothing(shop):
    shop.fill([f"k{n % 10}" for n in range(100)], partitions=2)
    before = Triggers(shop, ["a", "old", "gone"])
    async with running(before.app) as task:
        await until(lambda: all(len(before.got[n]) == 100 for n in ("a", "old", "gone")) or task.done())
        await until(lambda: any("old" in text.positions for _, text in before.commits().values()))
        refused = await asyncio.to_thread(command, shop, "rename", before.group, "old", "new")
        assert refused.exit_code == 1
        assert "stop the app first" in refused.output
    await task
    assert command(shop, "rename", before.group, "old", "new").output == "old is new now, in 2 partitions\n"
    assert command(shop, "forget", before.group, "gone").output == "gone is forgotten, in 2 partitions\n"
    for arguments in (("rename", "old", "other"), ("forget", "gone"), ("rename", "a", "new")):
        refused = command(shop, arguments[0], before.group, *arguments[1:])
        assert refused.exit_code == 1
        assert refused.output.startswith("error: ")
    listed = json.loads(command(shop, "list", before.group, "-o", "json").output)
    assert {(fact["trigger"], fact["position"] - fact["committed"]) for fact in listed} == {("a", 0), ("new", 0)}
    table = command(shop, "list", before.group).output
    assert f"{shop.main}-1" in table
    shop.fill(["x"] * 10, topic=shop.main)
    after = Triggers(shop, ["a", "new"])
    async with running(after.app) as task:
        await until(lambda: all(len(after.got[n]) == 10 for n in ("a", "new")) or task.done())
        await until(lambda: sum(offset for offset, _ in after.commits().values()) == 110)
    await task


def command(shop: Shop, name: str, *arguments: str) -> Result:
    return CliRunner().invoke(main.app, ["triggers", name, *arguments, "--bootstrap-server", shop.bootstrap])
