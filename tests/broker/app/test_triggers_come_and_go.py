"""Triggers that come and go while records flow: the others go on, and nothing is lost or handled twice."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from broker.app.conftest import Shop, running
from broker.app.in_batches import batched
from broker.app.test_sharing import Triggers
from lane_world import until
from multilane.client.async_consumer import AsyncConsumer
from multilane.client.produce.producer import Producer
from multilane.errors import ConfigError, GroupRefused, InstanceFenced
from multilane.types import TopicPartition

pytestmark = [pytest.mark.broker]


class Changing(Triggers):
    """Its app begins without the listeners of `late`."""

    def __init__(self, shop: Shop, names: list[str], late: list[str], **settings: Any) -> None:
        super().__init__(shop, [*names, *late], **settings)
        self.functions = {name: self.app.registration(name).function for name in late}
        for name in late:
            self.app.unsubscribe(name).result(0)

    async def subscribe(self, name: str, **more: Any) -> None:
        await asyncio.wait_for(asyncio.wrap_future(self.app.subscribe(name, self.functions[name], **more)), 30)

    async def unsubscribe(self, name: str) -> None:
        await asyncio.wait_for(asyncio.wrap_future(self.app.unsubscribe(name)), 30)

    def named(self) -> set[str]:
        return {name for _, text in self.commits().values() for name in text.positions}


def fill(shop: Shop, many: int, first: int = 0) -> None:
    with Producer({"bootstrap.servers": shop.bootstrap}) as producer:
        records = [(shop.main, b"%d" % n, b"k%d" % (n % 10)) for n in range(first, first + many)]
        producer.send_many(records).result(30)


async def test_a_trigger_joins_and_leaves_while_the_others_go_on(shop):
    fill_first(shop, 100)
    triggers = Changing(shop, ["a"], ["b"])
    async with running(triggers.app) as task:
        await until(lambda: len(triggers.got["a"]) == 100 or task.done())
        await until(lambda: sum(o for o, _ in triggers.commits().values()) == 100)
        members = list(triggers.app.engine.groups.values())
        await triggers.subscribe("b")
        await asyncio.to_thread(fill, shop, 50, 100)
        await until(lambda: all(len(triggers.handled(n)) >= want for n, want in (("a", 150), ("b", 50))))
        await until(lambda: triggers.named() == {"a", "b"})
        assert list(triggers.app.engine.groups.values()) == members, "it is the same consumer"
        assert len(triggers.app.engine.pool.consumers) == 1
        await triggers.unsubscribe("b")
        await asyncio.to_thread(fill, shop, 50, 150)
        await until(lambda: len(triggers.got["a"]) >= 200)
        await until(lambda: triggers.named() == {"a"} and sum(o for o, _ in triggers.commits().values()) == 200)
    await task
    assert len(triggers.got["a"]) == 200
    assert len(triggers.got["b"]) == 50


def fill_first(shop: Shop, many: int, partitions: int = 2) -> None:
    shop.main = shop.make_topic(partitions)
    fill(shop, many)


async def test_a_late_trigger_catches_up_from_the_start_and_moves_nobody(shop):
    """It reads on its own; the committed offset never moves back, and the others repeat nothing."""
    fill_first(shop, 300)
    triggers = Changing(shop, ["a"], ["early", "last"])
    async with running(triggers.app) as task:
        await until(lambda: len(triggers.got["a"]) == 300 or task.done())
        await until(lambda: sum(o for o, _ in triggers.commits().values()) == 300)
        before = {partition: offset for partition, (offset, _) in triggers.commits().items()}
        triggers.hangs["early"] = asyncio.Event()
        await triggers.subscribe("early", begin="earliest")
        await triggers.subscribe("last", begin="latest")
        await asyncio.to_thread(fill, shop, 20, 300)
        await until(lambda: len(triggers.got["a"]) == 320 and len(triggers.got["last"]) == 20)
        await until(lambda: triggers.named() == {"a", "early", "last"})
        waits = 0
        for partition, (offset, text) in triggers.commits().items():
            assert offset >= before[partition], "the plain offset does not move back"
            if text.positions["early"].offset < before[partition]:
                assert offset == before[partition]
                waits += 1
        assert waits, "the partition of k1"
        triggers.hangs["early"].set()
        await until(lambda: len(triggers.handled("early")) == 320)
        await until(lambda: sum(o for o, _ in triggers.commits().values()) == 320)
    await task
    assert [len(triggers.got[name]) for name in ("a", "early", "last")] == [320, 320, 20]


@pytest.mark.parametrize("run", [running, batched])
async def test_a_new_trigger_of_a_later_deployment_begins_where_from_says(shop, run):
    fill_first(shop, 100, partitions=1)
    before = Triggers(shop, ["a"])
    async with run(before.app) as task:
        await until(lambda: len(before.got["a"]) == 100 or task.done())
    await task
    split = datetime.now(UTC)
    await asyncio.to_thread(fill, shop, 10, 100)
    own = {"old": {"from": "earliest"}, "timed": {"from": split.isoformat()}}
    after = Triggers(shop, ["a", "old", "timed"], **own)
    async with run(after.app) as task:
        await until(lambda: len(after.got["old"]) >= 110 or task.done())
        await until(lambda: len(after.got["timed"]) >= 10 and len(after.got["a"]) >= 10)
        await until(lambda: sum(o for o, _ in after.commits().values()) == 110)
    await task
    assert [len(after.got[name]) for name in ("a", "old", "timed")] == [10, 110, 10]
    again = Triggers(shop, ["a", "old", "timed"], **own)
    await asyncio.to_thread(fill, shop, 5, 110)
    async with run(again.app) as task:
        await until(lambda: all(len(again.got[name]) == 5 for name in ("a", "old", "timed")) or task.done())
    await task
    assert [len(again.got[name]) for name in ("a", "old", "timed")] == [5, 5, 5], "it counts once"


async def test_a_late_start_before_the_log_says_what_retention_took(shop, caplog):
    fill_first(shop, 100, partitions=1)
    triggers = Changing(shop, ["a"], ["b"])
    async with running(triggers.app) as task:
        await until(lambda: len(triggers.got["a"]) == 100 or task.done())
        await asyncio.to_thread(delete_below, shop, 40)
        await triggers.subscribe("b", begin="earliest")
        await until(lambda: len(triggers.got["b"]) == 60)
    await task
    assert "the log starts at offset 40" in caplog.text
    assert "taken the 40 offsets below it" in caplog.text


def delete_below(shop: Shop, offset: int) -> None:
    from multilane.client.admin.admin import Admin

    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        admin.delete_records({TopicPartition(shop.main, 0): offset})


async def test_a_trigger_with_a_retry_topic_of_its_own_joins_and_leaves(shop):
    """Its topics change the subscription, so the member joins its group again: nothing is lost or repeated by that."""
    fill_first(shop, 100)
    retries = {name: shop.make_topic(2) for name in ("a", "b")}
    own = {name: {"retry": topic, "retryCount": 3} for name, topic in retries.items()}
    triggers = Changing(shop, ["a"], ["b"], errorBreaker={"action": "off"}, **own)
    triggers.fails.add("b")
    async with running(triggers.app) as task:
        await until(lambda: len(triggers.got["a"]) == 100 or task.done())
        await triggers.subscribe("b", begin="earliest")
        await until(lambda: "b" in triggers.app.engine.consumers)
        await until(lambda: triggers.app.engine.consumers["b"].settled >= 50, 60)
        triggers.fails.clear()
        await until(lambda: len(triggers.got["b"]) >= 100, 60)
        await triggers.unsubscribe("b")
        await asyncio.to_thread(fill, shop, 30, 100)
        await until(lambda: len(triggers.got["a"]) >= 130, 60)
        await until(lambda: main_names(triggers) == {"a"})
    await task
    assert len(triggers.got["a"]) == 130
    assert len(triggers.got["b"]) == len(triggers.handled("b"))


def main_names(triggers: Triggers) -> set[str]:
    return {name for _, text in triggers.commits().values() for name in text.positions}


def crash_network(triggers: Triggers) -> None:
    """As an unexpected exception of the decoder does."""
    from multilane.client.network_events import CrashThread

    [group] = triggers.app.engine.groups.values()
    group._consumer._state._lease.thread.put(CrashThread(RuntimeError("injected")))


def crash_pump(triggers: Triggers) -> None:
    """An exception that nobody expects."""
    [group] = triggers.app.engine.groups.values()
    group._pump.fail(ZeroDivisionError("injected"))


@pytest.mark.parametrize(("crash", "error"), [(crash_network, "ClientFailed"), (crash_pump, "ZeroDivisionError")])
async def test_a_failed_consumer_is_replaced_and_nothing_is_repeated(shop, caplog, crash, error):
    """Each trigger is told, and goes on at its own position, also where nothing could be committed."""
    fill_first(shop, 200)
    triggers = Triggers(shop, ["a", "b"], commitInterval="1h")
    async with running(triggers.app) as task:
        await until(lambda: all(len(triggers.got[n]) == 200 for n in "ab") or task.done())
        assert triggers.commits() == {}
        crash(triggers)
        await asyncio.to_thread(fill, shop, 100, 200)
        await until(lambda: all(len(triggers.got[n]) >= 300 for n in "ab") or task.done(), 60)
    await task
    for name in "ab":
        assert len(triggers.got[name]) == len(triggers.handled(name)) == 300
        assert f"trigger {name}: the consumer that it shares failed: {error}" in caplog.text
    assert sum(offset for offset, _ in triggers.commits().values()) == 300


async def test_a_detached_trigger_goes_on_with_the_new_consumer(shop, caplog):
    """A failure of its reader is one of the member that runs then."""
    fill_first(shop, 200, partitions=1)
    triggers = Changing(shop, ["a"], ["early"], commitInterval="1h")
    async with running(triggers.app) as task:
        await until(lambda: len(triggers.got["a"]) == 200 or task.done())
        triggers.hangs["early"] = asyncio.Event()
        await triggers.subscribe("early", begin="earliest")
        await until(lambda: len(triggers.got["early"]) == 180)
        crash_network(triggers)
        [group] = triggers.app.engine.groups.values()
        await until(lambda: "ClientFailed" in caplog.text and group._pump is not None and group._pump.processors)
        group._shared._readers["early"]._on_failure(ZeroDivisionError("injected"))
        await until(lambda: "failed: ZeroDivisionError" in caplog.text)
        triggers.hangs["early"].set()
        await asyncio.to_thread(fill, shop, 50, 200)
        await until(lambda: all(len(triggers.handled(n)) == 250 for n in ("a", "early")) or task.done(), 60)
    await task
    assert [len(triggers.got[name]) for name in ("a", "early")] == [250, 250]
    assert "are skipped" not in caplog.text, "it goes on, whatever offsetInitial says"


async def test_who_may_not_subscribe_learns_why(shop):
    fill_first(shop, 10)
    triggers = Changing(shop, ["a"], ["b"])
    async with running(triggers.app) as task:
        await until(lambda: len(triggers.got["a"]) == 10 or task.done())
        for begin in ("yesterday", "1969-12-31T00:00:00Z", ""):
            with pytest.raises(ConfigError, match="write earliest, latest, or a time"):
                triggers.app.subscribe("b", triggers.functions["b"], begin=begin)
        with pytest.raises(ConfigError, match="already has a listener"):
            triggers.app.subscribe("a", triggers.functions["b"])
        with pytest.raises(ConfigError, match="has no listener"):
            triggers.app.unsubscribe("b")
        await triggers.subscribe("b")
    await task


async def test_drain_finishes_and_says_what_is_left(shop):
    fill_first(shop, 100, partitions=1)
    triggers = Triggers(shop, ["a", "stuck"])
    triggers.hangs["stuck"] = asyncio.Event()
    async with running(triggers.app) as task:
        await until(lambda: (len(triggers.got["a"]) == 100 and len(triggers.got["stuck"]) >= 90) or task.done())
        left = await asyncio.wrap_future(triggers.app.drain(0.2))
        await task
    assert left["a"] == 0
    assert left["stuck"] == 100 - len(triggers.got["stuck"])
    assert triggers.commits()[TopicPartition(shop.main, 0)][1].positions["a"].offset == 100


async def test_a_fenced_member_comes_back_when_the_other_is_gone(shop, caplog):
    """A second process with the same group.instance.id fences it. It waits, longer each time, and takes its place back;
    what it had settled is not repeated."""
    fill_first(shop, 100)
    static = {"group.instance.id": "one", "group.protocol": "classic"}
    triggers = Triggers(shop, ["a", "b"], commitInterval="1h", properties=static)
    async with running(triggers.app) as task:
        await until(lambda: all(len(triggers.got[n]) == 100 for n in "ab") or task.done())
        passive = {"enable.auto.commit": False, "auto.offset.reset": "latest"}
        brokers = {"bootstrap.servers": shop.bootstrap, "group.id": triggers.group}
        async with AsyncConsumer({**brokers, **static, **passive}) as other:
            other.subscribe([shop.main])
            with suppress(InstanceFenced):
                while "the consumer that it shares failed: InstanceFenced" not in caplog.text:
                    await other.poll(0.1)
        await asyncio.to_thread(fill, shop, 50, 100)
        await until(lambda: all(len(triggers.handled(n)) == 150 for n in "ab") or task.done(), 60)
    await task
    assert [len(triggers.got[name]) for name in "ab"] == [150, 150]


async def test_a_wrong_configuration_still_ends_the_app(shop):
    """Before it was ever a member, the group's refusal is no accident."""
    fill_first(shop, 1)
    triggers = Triggers(shop, ["a", "b"], properties={"group.protocol": "classic"}, sessionTimeout="10h")
    with pytest.raises(GroupRefused):
        await asyncio.wait_for(triggers.app.serve(), 60)
