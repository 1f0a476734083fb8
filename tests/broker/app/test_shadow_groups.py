"""Each trigger's position as the committed offset of a group of its own, which any tool can read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import TopicPartition as Place

from broker.app.conftest import Shop, running
from broker.app.test_sharing import Triggers
from lane_world import until
from multilane.client.admin.admin import Admin
from multilane.client.async_consumer import AsyncConsumer
from multilane.client.consumer import Consumer
from multilane.errors import ConfigProblems
from multilane.runtime.shadow_groups import ShadowGroup, mark_of
from multilane.types import TopicPartition

pytestmark = [pytest.mark.broker]


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr("multilane.runtime.shadow_groups.PUBLISH_EVERY", 0.05)


def offsets(shop: Shop, group: str) -> dict[str, int]:
    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        return {str(p): int(at.offset) for p, at in admin.group_offsets(group).items()}


def shadowed(shop: Shop, *names: str) -> dict[str, Any]:
    return {name: {"shadowGroup": f"{shop.main}.shadow.{name}"} for name in names}


async def test_a_tool_sees_the_lag_of_each_trigger(shop):
    shop.fill(["k1", "k2", "k3"] * 10, partitions=1)
    triggers = Triggers(shop, ["slow", "quick"], virtualPartitionChanCount=100, **shadowed(shop, "slow", "quick"))
    triggers.hangs["slow"] = asyncio.Event()
    shadow = f"{shop.main}.shadow"
    async with running(triggers.app) as task:
        await until(lambda: offsets(shop, f"{shadow}.quick") == {f"{shop.main}-0": 30} or task.done())
        await until(lambda: offsets(shop, f"{shadow}.slow") == {f"{shop.main}-0": 0})
        triggers.hangs["slow"].set()
        await until(lambda: offsets(shop, f"{shadow}.slow") == {f"{shop.main}-0": 30} or task.done())
        shop.fill(["k9"] * 5, topic=shop.main)
        await until(lambda: len(triggers.got["quick"]) == len(triggers.got["slow"]) == 35 or task.done())
    await task
    assert offsets(shop, f"{shadow}.slow") == offsets(shop, f"{shadow}.quick") == {f"{shop.main}-0": 35}, "at the end"


async def test_offsets_of_others_are_never_moved(shop, caplog):
    shop.fill(["k1"] * 10, partitions=1)
    shadow, partition = f"{shop.main}.shadow.a", TopicPartition(shop.main, 0)
    with Consumer({"bootstrap.servers": shop.bootstrap, "group.id": shadow}) as consumer:
        consumer.assign([partition])
        consumer.commit({partition: 3})
    triggers = Triggers(shop, ["a", "b"], **shadowed(shop, "a", "b"))
    async with running(triggers.app) as task:
        await until(lambda: "it has offsets that this app has not written" in caplog.text or task.done())
        await until(lambda: offsets(shop, f"{shop.main}.shadow.b") == {f"{shop.main}-0": 10})
        assert len(triggers.got["a"]) == 10
    await task
    assert offsets(shop, shadow) == {f"{shop.main}-0": 3}
    assert caplog.text.count("no more positions are published there") == 1


async def test_a_group_with_members_is_left_alone(shop, caplog):
    shop.fill(["k1"] * 10, partitions=1)
    shadow = f"{shop.main}.shadow.a"
    member = Librdkafka({"bootstrap.servers": shop.bootstrap, "group.id": shadow, "enable.auto.commit": False})
    try:
        member.subscribe([shop.main])
        await until(lambda: member.poll(0.01) is None and member.assignment())
        triggers = Triggers(shop, ["a", "b"], **shadowed(shop, "a", "b"))
        async with running(triggers.app) as task:
            await until(lambda: f"shadow group {shadow}: no more positions" in caplog.text or task.done())
            await until(lambda: len(triggers.got["a"]) == 10)
        await task
        (found,) = member.committed([Place(shop.main, 0)], 10)
        assert found.offset < 0
    finally:
        member.close()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"a": {"shadowGroup": "x"}, "b": {"shadowGroup": "x"}}, "consumers.b uses the group x"),
        ({"a": {"shadowGroup": "SHARED"}, "b": {}}, "uses the group"),
        ({"a": {"shadowGroup": "x", "sharing": "off"}, "b": {"sharing": "off"}}, "does not share"),
    ],
)
def test_a_shadow_group_is_for_one_trigger_alone(shop, settings, problem):
    shop.fill(["a"])
    own = {n: {k: f"{shop.main}.group" if v == "SHARED" else v for k, v in s.items()} for n, s in settings.items()}
    with pytest.raises(ConfigProblems, match=problem):
        Triggers(shop, ["a", "b"], **own)


class Counted(AsyncConsumer):
    """The real consumer, and what it commits."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.commits: list[dict[TopicPartition, int]] = []

    async def commit(self, offsets: Any = None, timeout: float | None = None) -> None:
        await super().commit(offsets, timeout)
        self.commits.append({p: int(at.offset) for p, at in offsets.items()})


async def test_positions_are_published_again_before_the_brokers_forget_them(shop):
    shop.fill(["k1"] * 10, partitions=2)
    first, other = TopicPartition(shop.main, 0), TopicPartition(shop.main, 1)
    held = {first, other}
    async with Counted({"bootstrap.servers": shop.bootstrap, "group.id": f"{shop.main}.shadow"}) as consumer:
        group = ShadowGroup(f"{shop.main}.shadow", mark_of("g"), consumer, lambda: held)
        group.note(first, 4)
        group.note(other, 2)
        await group.publish(0.0)
        half = 7 * 86_400 / 2  # of the brokers' default
        for now in (1.0, half - 1):
            await group.publish(now)
        assert consumer.commits == [{first: 4, other: 2}]
        held.remove(other)
        await group.publish(half)
        assert consumer.commits[1:] == [{first: 4}]
        await group.publish(half + 1)
        assert len(consumer.commits) == 2


async def test_a_member_that_lost_a_partition_does_not_move_it_back(shop):
    shop.fill(["k1"] * 10, partitions=1)
    partition = TopicPartition(shop.main, 0)
    properties = {"bootstrap.servers": shop.bootstrap, "group.id": f"{shop.main}.shadow"}
    async with Counted(properties) as before, Counted(properties) as after:
        old = ShadowGroup("s", mark_of("g"), before, lambda: ())
        new = ShadowGroup("s", mark_of("g"), after, lambda: (partition,))
        old.note(partition, 5)
        new.note(partition, 7)
        await new.publish(0.0)
        await old.publish(0.0)
        assert offsets(shop, f"{shop.main}.shadow") == {f"{shop.main}-0": 7}
        new.note(partition, 3)  # somebody has reset the shared group
        await new.publish(1.0)
        assert offsets(shop, f"{shop.main}.shadow") == {f"{shop.main}-0": 3}
        old.note(partition, 9)
        await old.publish(1.0)
        assert offsets(shop, f"{shop.main}.shadow") == {f"{shop.main}-0": 9}, "its last commit, after it drained"
