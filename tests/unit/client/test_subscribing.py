"""subscribe, unsubscribe and assign exclude each other, and say so; no broker is needed for that."""

from __future__ import annotations

import asyncio
import re
import threading
import warnings

import pytest

from multilane import Admin, AsyncConsumer, Consumer, Producer, RebalanceListener, ServerPattern, TopicPartition
from multilane.client.sharing import THREADS
from multilane.errors import CommitRefused, ConfigError, GroupError, WakeupError, WrongSubscription

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "auto.offset.reset": "earliest"}


@pytest.fixture
def member():
    with Consumer(NOWHERE | {"group.id": "g", "enable.auto.commit": False}) as consumer:
        yield consumer
        consumer.close(0.0)


@pytest.fixture
def loner():
    with Consumer(NOWHERE) as consumer:
        yield consumer


def test_without_a_group_there_is_nothing_to_share(loner):
    with pytest.raises(WrongSubscription, match=r"set group\.id, or use assign"):
        loner.subscribe(["t"])
    for call in (loner.commit, loner.commit_async, lambda: loner.committed([("t", 0)])):
        with pytest.raises(GroupError, match=r"needs a group: set group\.id"):
            call()
    with pytest.raises(GroupError, match="not a member"):
        loner.group_metadata()


def test_the_subscription_can_be_read_and_replaced(member):
    assert member.subscription is None
    member.subscribe(["a"])
    assert member.subscription == {"a"}
    member.subscribe(re.compile("b.*"))
    assert member.subscription == re.compile("b.*")
    member.subscribe(ServerPattern("c.*"))
    assert member.subscription == ServerPattern("c.*")


def test_who_subscribes_does_not_assign(member):
    member.subscribe(["a"])
    with pytest.raises(WrongSubscription, match=r"unsubscribe\(\) before"):
        member.assign([("a", 0)])
    member.unsubscribe()
    member.assign([("a", 0)])
    with pytest.raises(WrongSubscription, match=r"assign\(\[\]\) before"):
        member.subscribe(["a"])
    member.assign([])
    member.subscribe(["a"])


@pytest.mark.parametrize(
    "give_up",
    [
        lambda c: c.subscribe([]),
        lambda c: c.subscribe(name for name in ()),
        lambda c: c.assign([]),
        lambda c: c.unsubscribe(),
    ],
)
def test_to_subscribe_to_or_to_assign_nothing_is_to_unsubscribe(member, give_up):
    member.subscribe(["a"])
    give_up(member)
    assert member.subscription is None
    give_up(member)  # again: nothing to give up


async def test_an_async_consumer_awaits_that():
    async with AsyncConsumer(NOWHERE | {"group.id": "g"}) as consumer:
        with pytest.raises(WrongSubscription, match=r"await unsubscribe\(\)"):
            consumer.subscribe([])
        consumer.subscribe(["a"])
        await consumer.unsubscribe()
        assert consumer.subscription is None
        await consumer.close(0.0)


def test_what_is_not_assigned_is_not_committed(member):
    member.subscribe(["a"])
    with pytest.raises(CommitRefused, match="a-0 is not assigned to this consumer"):
        member.commit({("a", 0): 5})


class Nameful:
    name = "mine"


def test_an_assignor_that_is_none_is_refused_where_it_is_given():
    with pytest.raises(ConfigError, match=r"Nameful is not an assignor, it lacks cooperative, assign, user_data"):
        Consumer(NOWHERE | {"group.id": "g", "partition.assignment.strategy": [Nameful()]})
    assert THREADS._threads == {}, "its network thread is given back"


def test_there_is_no_rebalance_without_a_subscription(member):
    with pytest.raises(WrongSubscription, match=r"subscribe\(\) first"):
        member.enforce_rebalance()


class Forgetful:
    def on_assigned(self, partitions):
        return None


@pytest.mark.parametrize(
    ("listener", "says"),
    [
        (print, "not a rebalance listener: it has no on_revoked, on_assigned, on_lost"),
        (Forgetful(), "Forgetful is not a rebalance listener: it has no on_revoked, on_lost"),
        (RebalanceListener, "is a class: pass an instance"),
        ("listener", "str is not a rebalance listener"),
    ],
)
def test_a_listener_that_is_none_is_refused(member, listener, says):
    with pytest.raises(TypeError, match=says):
        member.subscribe(["a"], listener)
    assert member.subscription is None


@pytest.mark.parametrize("client", [Consumer, Admin, Producer])
@pytest.mark.parametrize("properties", ["topic", ["bootstrap.servers"], 5])
def test_properties_are_a_mapping(client, properties):
    with pytest.raises(TypeError, match=r"properties must be a mapping such as .*, not a"):
        client(properties)


CALLS = {
    "poll(None)": lambda c: c.poll(None),
    "poll(text)": lambda c: c.poll("1"),
    "poll(nan)": lambda c: c.poll(float("nan")),
    "commit([1])": lambda c: c.commit([1]),
    "commit_async(1)": lambda c: c.commit_async(1),
    "commit(timeout=text)": lambda c: c.committed([("a", 0)], timeout="1"),
    "assign(text)": lambda c: c.assign("a"),
    "assign(None)": lambda c: c.assign(None),
    "assign(a partition)": lambda c: c.assign(TopicPartition("a", 0)),
    "pause(1)": lambda c: c.pause(1),
    "committed(text)": lambda c: c.committed("a"),
    "end_offsets(1)": lambda c: c.end_offsets(1),
    "offsets_for_times([])": lambda c: c.offsets_for_times([("a", 0)]),
    "seek_to_times(1)": lambda c: c.seek_to_times(1),
    "epoch_ends([])": lambda c: c.epoch_ends([("a", 0)]),
    "topic_ids(1)": lambda c: c.topic_ids(1),
    "topic_ids(text)": lambda c: c.topic_ids("a"),
    "commit_async(callback)": lambda c: c.commit_async({("a", 0): 1}, callback=5),
    "close(text)": lambda c: c.close("x"),
}


@pytest.mark.parametrize("call", CALLS)
def test_wrong_arguments_say_what_to_write(member, call):
    with pytest.raises(TypeError, match=r": write "):
        CALLS[call](member)


def test_a_poll_may_be_given_all_the_time_there_is(loner):
    loner.wakeup()
    with pytest.raises(WakeupError):
        loner.poll(float("inf"))


@pytest.mark.parametrize("call", ["commit", "committed", "end_offsets", "partitions_for"])
def test_wakeup_interrupts_whatever_waits(member, call):
    calls = {
        "commit": lambda: member.commit({("a", 0): 1}),
        "committed": lambda: member.committed([("a", 0)]),
        "end_offsets": lambda: member.end_offsets([("a", 0)]),
        "partitions_for": lambda: member.partitions_for("a"),
    }
    member.assign([("a", 0)])
    timer = threading.Timer(0.05, member.wakeup)
    timer.start()
    with pytest.raises(WakeupError):  # default.api.timeout.ms is a minute
        calls[call]()
    timer.join()


async def test_also_in_an_event_loop():
    async with AsyncConsumer(NOWHERE | {"group.id": "g", "enable.auto.commit": False}) as consumer:
        consumer.assign([("a", 0)])
        asyncio.get_running_loop().call_later(0.05, consumer.wakeup)
        with pytest.raises(WakeupError):
            await consumer.commit({("a", 0): 1})
        consumer.wakeup()
        await consumer.close(0.0)  # is not interrupted


def test_a_wakeup_that_nobody_waited_for_does_not_interrupt_close():
    consumer = Consumer(NOWHERE | {"group.id": "g"})
    consumer.subscribe(["a"])
    consumer.wakeup()
    consumer.close(0.0)


def test_a_consumer_that_is_never_closed_is_reported():
    consumer = Consumer(NOWHERE)
    state = consumer._state
    with pytest.warns(ResourceWarning, match=r"Consumer of 127\.0\.0\.1:1, 0 partitions.* was never closed"):
        del consumer
    state.begin_close(0.0)
    state.end_close().result(5)


def test_one_that_was_closed_or_never_made_is_not():
    consumer = Consumer(NOWHERE)
    consumer.close(0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        consumer.__del__()
        with pytest.raises(ConfigError):
            Consumer({"bootstrap.servers": ""})
