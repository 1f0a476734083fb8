"""A consumer without standing in its group: nothing is handed out, and its partitions are lost before anything else."""

from __future__ import annotations

import pytest

from broker.group_members import PROTOCOLS, LiveGroup, Member, fill, membership, new_group, partitions_of
from broker.group_processes import ProcessMember
from multilane import AsyncConsumer, RebalanceListener
from multilane.errors import GroupError

pytestmark = [pytest.mark.broker, pytest.mark.cluster]

RECORDS = 2_000
IMPATIENT = {"max_poll_interval_ms": 1_500, "session_timeout_ms": 1_200, "max_poll_records": 10}


def impatient(variant):
    return {key: value for key, value in IMPATIENT.items() if variant != "consumer" or not key.startswith("session")}


def is_member(consumer):
    try:
        return consumer.group_metadata() is not None
    except GroupError:
        return False


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_after_max_poll_interval_nothing_is_handed_out_before_on_lost(kafka, topic, variant, eventually):
    partitions = partitions_of(topic(2), 2)
    fill(kafka, partitions, 0, RECORDS)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group:
        [slow] = live_group.join(**impatient(variant))
        live_group.until(lambda: slow.count() >= 50)  # and the rest is buffered
        live_group.members.remove(slow)
        eventually(lambda: not is_member(slow.consumer), 10)
        [other] = live_group.join()
        live_group.until(lambda: other.assignment == frozenset(partitions))  # the group has given the slow one up
        before = slow.count()
        while not slow.changes("lost"):
            slow.poll(0)
            assert slow.count() == before or slow.changes("lost"), "records of partitions that others have"
        slow.close()


class Losses(RebalanceListener):
    lost = 0

    async def on_lost(self, partitions):
        self.lost += len(partitions)


@pytest.mark.parametrize("variant", PROTOCOLS)
async def test_nor_in_an_event_loop(kafka, topic, variant, eventually):
    partitions = partitions_of(topic(1), 1)
    fill(kafka, partitions, 0, RECORDS)
    group, losses = new_group(), Losses()
    more = {key.replace("_", "."): value for key, value in impatient(variant).items()}
    properties = {"bootstrap.servers": kafka.bootstrap(), "group.id": group, "auto.offset.reset": "earliest"}
    async with AsyncConsumer({**properties, **membership(variant), **more}) as slow:
        slow.subscribe([partitions[0].topic], losses)
        while not await slow.poll(0.1):
            pass
        eventually(lambda: not is_member(slow), 10)  # blocks the loop, as a slow handler would
        other = Member(kafka, group, [partitions[0].topic], variant)
        while other.assignment != frozenset(partitions):
            other.poll()
        while not losses.lost:
            assert not await slow.poll(0) or losses.lost
        other.close()


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_a_process_that_was_stopped_beyond_its_session_hands_out_nothing_before_on_lost(kafka, topic, variant):
    partitions = partitions_of(topic(1), 1)
    fill(kafka, partitions, 0, RECORDS)
    names = [partitions[0].topic]
    with (
        LiveGroup(kafka, variant, names) as live_group,
        ProcessMember(kafka, live_group.group, names, variant, max_poll_records=5) as sleeps,
    ):
        live_group.until(lambda: sleeps.assignment)
        sleeps.order("take")  # and the rest is buffered
        live_group.until(lambda: sleeps.told("records"))
        sleeps.freeze()
        [other] = live_group.join()
        live_group.until(lambda: other.assignment == frozenset(partitions), timeout=15)
        before = len(sleeps.events)
        sleeps.order("go")
        sleeps.thaw()
        live_group.until(lambda: sleeps.told("lost"))
        kinds = [told["event"] for told in sleeps.events[before:]]
        assert "records" not in kinds[: kinds.index("lost")], "records of partitions that others have"
