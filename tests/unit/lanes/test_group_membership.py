"""What happens, and in which order, when partitions are revoked or lost."""

from __future__ import annotations

import pytest

from multilane.clock import ManualClock
from multilane.commit.ledger import CommitPoint
from multilane.errors import MultilaneError
from multilane.lanes.assignment import Assignment, ReadTopics, Start
from multilane.lanes.group_membership import GroupMembership, Timing
from multilane.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
DRAIN = 7.0


class Processor:
    """Settles its last record while it drains."""

    def __init__(self, steps, clock):
        self.partitions = frozenset([ORDERS])
        self.settled = 0
        self._steps = steps
        self._clock = clock

    def commit_point(self, partition):
        return CommitPoint(10 + self.settled, -1, ())

    async def drain(self, deadline):
        self._steps.append(("drain", deadline - self._clock.monotonic()))
        self.settled = 1


class Consumer:
    """Remembers what is asked of it."""

    def __init__(self, steps):
        self._steps = steps
        self.is_refusing = False

    async def commit(self, commits):
        self._steps.append(("commit", {p: commit.offset for p, commit in commits.items()}))
        if self.is_refusing:
            raise MultilaneError("the coordinator is away")

    def known_topic_id(self, topic):
        return None


class Events:
    """The application's functions."""

    def __init__(self, steps):
        self._steps = steps

    async def assigned(self, partitions):
        self._steps.append(("assigned", partitions))

    async def revoked(self, partitions, *, is_lost=False):
        self._steps.append(("lost" if is_lost else "revoked", partitions))


class World:
    def __init__(self):
        self.steps = []
        clock = ManualClock()

        async def build(starts):
            return Processor(self.steps, clock)

        async def check(starts):
            return starts

        self.assignment = Assignment(ReadTopics(("orders",)), build, lambda processor: None, check)
        self.consumer = Consumer(self.steps)
        self.member = GroupMembership(self.consumer, self.assignment, Timing(1.0, DRAIN), clock)
        self.member.events = Events(self.steps)


@pytest.fixture
async def world():
    made = World()
    await made.assignment.begin({ORDERS: Start(10)})
    return made


async def test_revoked_partitions_drain_then_the_application_is_called_then_they_are_committed(world):
    await world.member.on_revoked(frozenset([ORDERS]))
    assert world.steps == [("drain", DRAIN), ("revoked", {ORDERS}), ("commit", {ORDERS: 11})]
    assert not world.assignment.partitions


async def test_a_commit_that_fails_keeps_nobody_from_releasing(world, caplog):
    world.consumer.is_refusing = True
    await world.member.on_revoked(frozenset([ORDERS]))
    assert not world.assignment.partitions
    assert "they will be redelivered: the coordinator is away" in caplog.text


async def test_lost_partitions_are_never_committed(world):
    await world.member.on_lost(frozenset([ORDERS]))
    assert world.steps == [("drain", 0.0), ("lost", {ORDERS})]
    assert not world.assignment.partitions


async def test_partitions_that_never_began_are_only_released(world):
    other = frozenset([TopicPartition("orders", 1)])
    await world.member.on_revoked(other)
    assert world.steps == [("revoked", other)]
    assert set(world.assignment.partitions) == {ORDERS}
