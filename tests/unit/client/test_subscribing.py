"""subscribe, unsubscribe and assign exclude each other, and say so; no broker is needed for that."""

from __future__ import annotations

import re

import pytest

from multilane import AsyncConsumer, Consumer, ServerPattern
from multilane.client.group.wishes import ClientPattern, Names
from multilane.client.sharing import THREADS
from multilane.errors import CommitRefused, ConfigError, GroupError, WrongSubscription

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
    with pytest.raises(WrongSubscription, match=r"set group\.id, or assign"):
        loner.subscribe(["t"])
    for call in (loner.commit, loner.commit_async, lambda: loner.committed([("t", 0)])):
        with pytest.raises(GroupError, match=r"needs a group: set group\.id"):
            call()
    with pytest.raises(GroupError, match="not a member"):
        loner.group_metadata()


def test_the_subscription_can_be_read_and_replaced(member):
    assert member.subscription is None
    member.subscribe(["a"])
    assert member.subscription == Names(frozenset({"a"}))
    member.subscribe(re.compile("b.*"))
    assert isinstance(member.subscription, ClientPattern)
    member.subscribe(ServerPattern("c.*"))
    assert member.subscription == ServerPattern("c.*")


def test_who_subscribes_does_not_assign(member):
    member.subscribe(["a"])
    with pytest.raises(WrongSubscription, match=r"unsubscribe\(\) first"):
        member.assign([("a", 0)])
    member.unsubscribe()
    member.assign([("a", 0)])
    with pytest.raises(WrongSubscription, match=r"assign\(\[\]\) first"):
        member.subscribe(["a"])
    member.assign([])
    member.subscribe(["a"])


@pytest.mark.parametrize("give_up", [lambda c: c.subscribe([]), lambda c: c.assign([]), lambda c: c.unsubscribe()])
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
    with pytest.raises(ConfigError, match=r"Nameful is no assignor, it lacks cooperative, assign, user_data"):
        Consumer(NOWHERE | {"group.id": "g", "partition.assignment.strategy": [Nameful()]})
    assert THREADS._threads == {}, "its network thread is given back"


def test_there_is_no_rebalance_without_a_subscription(member):
    with pytest.raises(WrongSubscription, match=r"subscribe\(\) first"):
        member.enforce_rebalance()
