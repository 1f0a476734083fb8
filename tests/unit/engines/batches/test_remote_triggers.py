"""Several triggers of a partition with leases of their own, and the commit that they have together."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from multilane.clock import ManualClock
from multilane.commit.ledger import CommitPoint
from multilane.commit.trigger_positions import Position
from multilane.engines.batches.lease_table import LeaseTable
from multilane.engines.batches.messages import LogReset
from multilane.engines.batches.remote_triggers import RemoteTriggers
from multilane.lanes.assignment import Start
from multilane.lanes.joint_commit import JointCommit
from multilane.types import TopicPartition

P = [TopicPartition("orders", number) for number in range(3)]
RETRY = TopicPartition("slow.retry", 0)


class Worker:
    def __init__(self) -> None:
        self.received = []

    def send(self, kind, **fields):
        self.received.append((kind, fields))


class Shared:
    """Partition 0 of triggers slow and quick; slow has its retry partition beside it."""

    def __init__(self, slow=0, quick=0, start=0, absent=None, topic_id=None) -> None:
        self.clock = ManualClock()
        self.lease_table = LeaseTable(self.clock)
        starts = {
            "slow": {P[0]: Start(slow, topic_id=topic_id), RETRY: Start(0)},
            "quick": {P[0]: Start(quick, topic_id=topic_id)},
        }
        made = self.lease_table.new_processors("slow + quick", starts)
        self.slow, self.quick = made
        commit = JointCommit(P[0], CommitPoint(start, 0, ()), absent or {}, self.clock, 60.0)
        self.triggers = RemoteTriggers(P[0], {"slow": self.slow, "quick": self.quick}, commit)

    def grant(self):
        """Everything to one worker, which gets its leases by trigger."""
        self.worker = Worker()
        [number] = self.lease_table.plan(1)
        leases = self.lease_table.grant(number, self.worker).leases
        return number, {lease.consumer: lease for lease in leases}

    def tell(self, lease, offset, runs=(), **more):
        points = {**lease.points, P[0]: CommitPoint(offset, 0, runs)}
        self.lease_table.note_progress([replace(lease, points=points, **more)], self.worker)

    @property
    def point(self):
        return self.triggers.commit_point(P[0])


def test_the_slowest_decides_and_the_others_are_named():
    shared = Shared()
    _, leases = shared.grant()
    shared.tell(leases["quick"], 9, ((11, 12),), settled=11)
    shared.tell(leases["slow"], 2, ((11, 11),), settled=3)
    assert (shared.point.offset, shared.point.runs) == (2, ((11, 11),))
    assert shared.point.positions == {"slow": Position(2, ((11, 11),)), "quick": Position(9, ((11, 12),))}
    assert shared.triggers.settled == 14
    assert shared.triggers.partitions == {P[0], RETRY}


def test_a_retry_partition_is_committed_by_its_trigger():
    shared = Shared()
    _, leases = shared.grant()
    points = {P[0]: CommitPoint(4, 0, ()), RETRY: CommitPoint(3, 0, ())}
    shared.lease_table.note_progress([replace(leases["slow"], points=points)], shared.worker)
    assert shared.triggers.commit_point(RETRY) == CommitPoint(3, 0, ())


def test_the_commit_never_moves_back_but_for_another_log():
    """A trigger that was given up begins below it. The worker of any trigger finds that the log was cut."""
    shared = Shared(slow=3, quick=10, start=10, absent={"gone": Position(40)})
    _, leases = shared.grant()
    assert shared.point.offset == 10
    assert shared.point.positions["gone"].offset == 40
    shared.tell(leases["quick"], 6, log_resets={P[0]: LogReset(1, 6)})
    shared.tell(leases["slow"], 6)
    assert shared.point.offset == 6
    assert shared.point.positions["gone"].offset == 6, "what it had settled is gone, too"


def test_a_reset_log_of_a_retry_topic_moves_nothing_else():
    shared = Shared(slow=10, quick=10, start=10)
    _, leases = shared.grant()
    points = {P[0]: CommitPoint(10, 0, ()), RETRY: CommitPoint(0, 0, ())}
    told = replace(leases["slow"], points=points, log_resets={RETRY: LogReset(1, 0)})
    shared.lease_table.note_progress([told], shared.worker)
    assert shared.point.offset == 10


def test_all_triggers_look_for_the_id_of_a_log_that_one_found_reset():
    """Else one that was at the log's beginning would go on with the id of the old topic, and reset the others again."""
    shared = Shared(quick=5, topic_id=uuid4())
    number, leases = shared.grant()
    assert leases["slow"].topic_ids
    shared.tell(leases["quick"], 0, log_resets={P[0]: LogReset(1, 0)})
    shared.lease_table.close(number, shared.worker)
    _, leases = shared.grant()
    assert [lease.topic_ids for lease in leases.values()] == [{}, {}]


def test_a_recreated_topic_is_noticed_for_all():
    old, new = uuid4(), uuid4()
    shared = Shared(topic_id=old)
    assert shared.triggers.note_ids({"orders": old}) == frozenset()
    assert shared.triggers.note_ids({"orders": new}) == {"orders"}


async def test_all_of_them_are_drained():
    shared = Shared()
    shared.grant()
    draining = asyncio.create_task(shared.triggers.drain(shared.clock.monotonic()))
    await asyncio.wait([draining], timeout=0.01)
    revoked = [fields["unit"] for kind, fields in shared.worker.received if kind == "back"]
    assert revoked == [shared.slow.number, shared.quick.number]
    shared.lease_table.lose(shared.worker)
    await draining
    assert shared.slow.is_revoked
    assert shared.quick.is_revoked


@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
def test_all_triggers_of_a_partition_are_in_one_task(tasks):
    lease_table = LeaseTable(ManualClock())
    for partition in P:
        lease_table.new_processors("a + b + c", {name: {partition: Start(0)} for name in "abc"})
    lease_table.new_processor("alone", {TopicPartition("bills", 0): Start(0)})
    numbers = lease_table.plan(tasks)
    granted = [lease_table.grant(number, Worker()).leases for number in numbers]
    assert len(granted) == min(tasks, 4)
    assert max(map(len, granted)) - min(map(len, granted)) <= 5, "in bundles of three and one"
    for partition in P:
        there = [[lease.consumer for lease in leases if partition in lease.points] for leases in granted]
        assert sorted(filter(None, there)) == [["a", "b", "c"]]


def test_the_ends_of_logs_are_those_of_the_member():
    """One lookup for all of its triggers."""
    shared = Shared()
    shared.lease_table.note_ends("slow + quick", {P[0]: 0})
    assert not shared.lease_table.has_work
    shared.lease_table.note_ends("slow + quick", {P[0]: 1})
    assert shared.lease_table.has_work
