"""Consumers that close: each leaves its group, whatever the others do and however close() ends."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from broker.group_members import PROTOCOLS, LiveGroup, membership, new_group, partitions_of
from multilane import Admin, AsyncConsumer
from multilane.errors import NoOffsetForPartition

pytestmark = [pytest.mark.broker, pytest.mark.cluster]

PATIENCE = {"range": 20, "consumer": 2}  # seconds; far less than a session timeout


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_several_consumers_of_a_group_close_and_no_member_is_left(kafka, topic, variant):
    partitions = partitions_of(topic(4), 4)
    long_session = {} if variant == "consumer" else {"session_timeout_ms": 45_000}
    with (
        Admin({"bootstrap.servers": kafka.bootstrap()}) as admin,
        LiveGroup(kafka, variant, [partitions[0].topic]) as live_group,
    ):
        live_group.join(4, **long_session)
        live_group.settle(partitions)
        for left in (3, 2, 1, 0):
            live_group.leave(live_group.members[0])
            described = admin.describe_groups([live_group.group])[live_group.group]
            assert len(described.members) == left, "a ghost until its session ends"


def _raise(change, _partitions):
    if change == "revoked":
        raise LookupError("of the application")


def _with_a_listener_that_raises(member):
    member.on_step = _raise
    with suppress(LookupError):
        member.consumer.close()


def _without_time(member):
    member.consumer.close(timeout=0)


def _while_another_thread_polls(member):
    with member.consumer._state._users.exclusive(lambda: None):  # as if that thread were in its poll
        closing = threading.Thread(target=member.consumer.close)
        closing.start()
        closing.join()


@pytest.mark.parametrize("close", [_with_a_listener_that_raises, _without_time, _while_another_thread_polls])
@pytest.mark.parametrize("variant", PROTOCOLS)
def test_no_member_is_left_however_a_consumer_closes(kafka, topic, variant, close, eventually):
    partitions = partitions_of(topic(2), 2)
    long_session = {} if variant == "consumer" else {"session_timeout_ms": 45_000}
    with (
        Admin({"bootstrap.servers": kafka.bootstrap()}) as admin,
        LiveGroup(kafka, variant, [partitions[0].topic]) as live_group,
    ):
        member, _stays = live_group.join(2, **long_session)
        live_group.settle(partitions)
        live_group.members.remove(member)
        close(member)
        eventually(
            lambda: len(admin.describe_groups([live_group.group])[live_group.group].members) == 1, PATIENCE[variant]
        )


@pytest.mark.parametrize("variant", PROTOCOLS)
async def test_no_member_is_left_when_close_is_cancelled(kafka, topic, variant, eventually):
    partitions = partitions_of(topic(1), 1)
    group, long_session = new_group(), {} if variant == "consumer" else {"session.timeout.ms": 45_000}
    consumer = AsyncConsumer(
        {"bootstrap.servers": kafka.bootstrap(), "group.id": group, **membership(variant), **long_session}
    )
    consumer.subscribe([partitions[0].topic])
    while not consumer.assignment:
        with suppress(NoOffsetForPartition):
            await consumer.poll(0.1)
    closing = asyncio.create_task(consumer.close())
    await asyncio.wait([closing], timeout=0)  # it has begun
    closing.cancel()
    with suppress(asyncio.CancelledError):
        await closing
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        eventually(lambda: not admin.describe_groups([group])[group].members, PATIENCE[variant])
