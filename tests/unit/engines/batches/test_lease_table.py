"""Leases as a whole: which worker gets what, which reports count, and what happens when a worker is gone."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from uuid import uuid4

import pytest

from multilane.clock import SystemClock
from multilane.commit.ledger import CommitPoint
from multilane.engines.batches.lease_table import LeaseTable, LeaseTerms
from multilane.engines.batches.messages import HeldRecord, LogReset, PartitionLease, lease_from
from multilane.errors import ChannelLost
from multilane.lanes.assignment import Start
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

P = [TopicPartition("orders", number) for number in range(6)]


class Worker:
    """The other end of a channel."""

    def __init__(self) -> None:
        self.received = []
        self.is_gone = False

    def send(self, kind, **fields):
        if self.is_gone:
            raise ChannelLost("gone")
        self.received.append((kind, fields))


class Ticking(SystemClock):
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def lease_table():
    return LeaseTable(Ticking(), LeaseTerms(3.0, 0.5))


def with_processors(lease_table, many=2):
    return [lease_table.new_processor("Orders", {P[at]: Start(0)}) for at in range(many)]


def at(processor, offset, runs=(), **more):
    [partition] = processor.partitions
    return PartitionLease(processor.number, processor.consumer, {partition: CommitPoint(offset, 0, runs)}, **more)


async def test_a_batch_leases_out_everything_once(lease_table):
    processors = with_processors(lease_table, 5)
    first, second = lease_table.plan(2)
    one, two = Worker(), Worker()
    task_leases = [lease_table.grant(first, one), lease_table.grant(second, two)]
    leased = [lease.number for task_lease in task_leases for lease in task_lease.leases]
    assert sorted(leased) == [processor.number for processor in processors]
    assert {len(task_lease.leases) for task_lease in task_leases} == {2, 3}
    assert len(lease_table.plan(2)) == 2
    assert lease_table.grant(first, one) is None, "the batch before is over"


async def test_fewer_leases_than_tasks_make_fewer_tasks(lease_table):
    assert lease_table.plan(4) == []
    with_processors(lease_table, 1)
    assert len(lease_table.plan(4)) == 1


async def test_there_is_work_when_a_log_grows_and_no_worker_has_it(lease_table):
    changes = []
    lease_table.on_change = lambda: changes.append(True)
    [processor] = with_processors(lease_table, 1)
    lease_table.note_ends("Orders", {P[0]: 0})
    assert not lease_table.has_work
    assert not changes
    lease_table.note_ends("Orders", {P[0]: 3})
    assert lease_table.has_work
    assert changes
    [number] = lease_table.plan(1)
    assert not lease_table.has_work
    worker = Worker()
    lease_table.grant(number, worker)
    lease_table.take_back([at(processor, 2)], worker)
    lease_table.close(number, worker)
    assert lease_table.has_work, "the third is still to be done"
    assert len(changes) == 2


async def test_after_a_batch_that_settled_something_the_next_one_comes_at_once(lease_table):
    """New records should not wait for the next lookup of the logs' ends."""
    changes = []
    lease_table.on_change = lambda: changes.append(True)
    [processor] = with_processors(lease_table, 1)
    lease_table.note_ends("Orders", {P[0]: 3})
    worker = Worker()
    [number] = lease_table.plan(1)
    lease_table.grant(number, worker)
    lease_table.take_back([at(processor, 3, settled=3)], worker)
    changes.clear()
    lease_table.close(number, worker)
    assert lease_table.has_work
    assert changes
    [number] = lease_table.plan(1)
    lease_table.grant(number, worker)
    lease_table.take_back([at(processor, 3)], worker)
    lease_table.close(number, worker)
    assert not lease_table.has_work, "a batch that settled nothing is the last until new records arrive"
    assert len(changes) == 1


async def test_a_task_that_never_connected_does_not_hold_up_the_next_batch(lease_table):
    changes = []
    lease_table.on_change = lambda: changes.append(True)
    with_processors(lease_table, 1)
    lease_table.note_ends("Orders", {P[0]: 3})
    lease_table.plan(1)
    changes.clear()
    lease_table.note_ends("Orders", {P[0]: 4})
    assert not changes, "a task may have it"
    lease_table.end_batch()
    assert lease_table.has_work
    assert changes


async def test_batches_are_shorter_while_something_is_carried_over(lease_table):
    lease_table.terms = LeaseTerms(20.0, 0.5, carrying=10.0)
    [processor] = with_processors(lease_table, 1)
    worker = Worker()
    [number] = lease_table.plan(1)
    assert lease_table.grant(number, worker).seconds == 20.0
    lease_table.take_back([at(processor, 4, held=(HeldRecord(P[0], 4, b"slow"),))], worker)
    lease_table.close(number, worker)
    [number] = lease_table.plan(1)
    assert lease_table.grant(number, worker).seconds == 10.0, "its key may wait for the next batch"


async def test_a_restarted_task_goes_on_where_its_last_attempt_was(lease_table):
    [processor] = with_processors(lease_table, 1)
    [number] = lease_table.plan(1)
    first, second = Worker(), Worker()
    lease_table.grant(number, first)
    lease_table.note_progress([at(processor, 10, ((12, 15),))], first)
    lease_table.clock.now += 1.0
    lease_table.lose(first)
    task_lease = lease_table.grant(number, second)
    assert task_lease.seconds == pytest.approx(3.0), "the time of the restart does not count"
    assert task_lease.leases[0].points[P[0]].offset == 10
    assert task_lease.leases[0].points[P[0]].runs == ((12, 15),)
    lease_table.note_progress([at(processor, 99)], first)
    lease_table.close(number, first)
    assert processor.commit_point(P[0]).offset == 10, "messages of the first attempt do not count"
    lease_table.note_progress([at(processor, 20)], second)
    assert processor.commit_point(P[0]).offset == 20


async def test_only_the_later_of_two_attempts_counts(lease_table):
    """The first one's machine does not answer, and is not known to be gone yet."""
    [processor] = with_processors(lease_table, 1)
    [number] = lease_table.plan(1)
    first, second = Worker(), Worker()
    lease_table.grant(number, first)
    lease_table.clock.now += 1.0
    assert lease_table.grant(number, second).seconds == pytest.approx(2.0)
    lease_table.note_progress([at(processor, 99)], first)
    assert processor.commit_point(P[0]).offset == 0


async def test_records_carried_over_are_not_leased_and_not_committed(lease_table):
    [processor] = with_processors(lease_table, 1)
    slow = HeldRecord(P[0], 4, b"slow")
    worker, other = Worker(), Worker()
    [number] = lease_table.plan(1)
    lease_table.grant(number, worker)
    lease_table.take_back([at(processor, 4, ((5, 9),), held=(slow,))], worker)
    lease_table.close(number, worker)
    assert processor.commit_point(P[0]).offset == 4
    assert lease_table.has_work, "a worker without a task would be ended, and its call with it"
    [number] = lease_table.plan(1)
    [lease] = lease_table.grant(number, other).leases
    assert lease.points[P[0]].offset == 10
    assert lease.held == (slow,)
    lease_table.note_progress([at(processor, 20)], other)
    assert (processor.commit_point(P[0]).offset, processor.commit_point(P[0]).runs) == (4, ((5, 19),))
    lease_table.release(processor.number, [slow], worker, is_settled=True)
    assert processor.commit_point(P[0]).offset == 20
    assert processor.settled == 1


async def test_records_in_flight_at_a_lost_worker_are_leased_again(lease_table):
    [processor] = with_processors(lease_table, 1)
    slow = HeldRecord(P[0], 4, b"slow")
    worker, other = Worker(), Worker()
    [number] = lease_table.plan(1)
    lease_table.grant(number, worker)
    lease_table.take_back([at(processor, 4, ((5, 9),), held=(slow,))], worker)
    lease_table.close(number, worker)
    lease_table.lose(worker)
    [number] = lease_table.plan(1)
    [lease] = lease_table.grant(number, other).leases
    assert (lease.points[P[0]].offset, lease.points[P[0]].runs, lease.held) == (4, ((5, 9),), ())


async def test_a_lease_of_revoked_partitions_is_revoked_and_not_granted_again(lease_table):
    one, two = with_processors(lease_table, 2)
    worker = Worker()
    [number] = lease_table.plan(1)
    lease_table.grant(number, worker)
    draining = asyncio.create_task(one.drain(lease_table.clock.now + 5.0))
    await asyncio.wait([draining], timeout=0)
    assert ("back", {"unit": one.number, "seconds": 5.0}) in worker.received
    assert not draining.done()
    lease_table.take_back([at(one, 7)], worker)
    await draining
    assert one.commit_point(P[0]).offset == 7
    lease_table.take_back([at(two, 3)], worker)
    lease_table.close(number, worker)
    [number] = lease_table.plan(2)
    assert [lease.number for lease in lease_table.grant(number, worker).leases] == [two.number]


async def test_a_lease_that_no_worker_has_is_free_at_once(lease_table):
    [processor] = with_processors(lease_table, 1)
    await asyncio.wait_for(processor.drain(lease_table.clock.now), 30.0)


async def test_a_revoked_lease_waits_for_calls_that_are_carried_over(lease_table):
    [processor] = with_processors(lease_table, 1)
    slow = HeldRecord(P[0], 0, b"slow")
    worker = Worker()
    [number] = lease_table.plan(1)
    lease_table.grant(number, worker)
    lease_table.take_back([at(processor, 0, held=(slow,))], worker)
    lease_table.close(number, worker)
    draining = asyncio.create_task(processor.drain(lease_table.clock.now + 5.0))
    await asyncio.wait([draining], timeout=0)
    assert worker.received[-1] == ("back", {"unit": processor.number, "seconds": 5.0})
    assert not draining.done()
    lease_table.release(processor.number, [slow], worker, is_settled=False)
    await draining


async def test_a_batch_ends_early_when_there_is_more_to_lease(lease_table):
    with_processors(lease_table, 1)
    worker = Worker()
    [number] = lease_table.plan(1)
    lease_table.grant(number, worker)
    lease_table.new_processor("Bills", {TopicPartition("bills", 0): Start(0)})
    assert worker.received[-1] == ("end", {})
    worker.is_gone = True
    lease_table.end_tasks()


async def test_a_key_goes_on_when_its_call_has_ended_elsewhere(lease_table):
    [processor] = with_processors(lease_table, 1)
    slow = HeldRecord(P[0], 4, b"slow")
    worker, other = Worker(), Worker()
    carry_over(lease_table, processor, worker, slow)
    [number] = lease_table.plan(1)
    lease_table.grant(number, other)
    lease_table.release(processor.number, [slow], other, is_settled=True)
    assert other.received == [], "it does not hold it"
    lease_table.release(processor.number, [slow], worker, is_settled=False)
    assert other.received == [], "what is undone comes first, with the next task_lease"
    assert processor.commit_point(P[0]).offset == 4
    again = HeldRecord(P[0], 4, b"slow")
    lease_table.take_back([at(processor, 10, held=())], other)
    lease_table.close(number, other)
    carry_over(lease_table, processor, worker, again)
    [number] = lease_table.plan(1)
    lease_table.grant(number, other)
    lease_table.release(processor.number, [again], worker, is_settled=True)
    assert other.received == [("freed", {"unit": processor.number, "held": [["orders", 0, 4, "c2xvdw==", True]]})]


def carry_over(lease_table, processor, worker, record):
    [number] = lease_table.plan(1)
    lease_table.grant(number, worker)
    lease_table.take_back([at(processor, 4, ((5, 9),), held=(record,))], worker)
    lease_table.close(number, worker)


async def test_attempts_are_known_from_lease_to_lease(lease_table):
    """Else a record that fails would never have failed often enough."""
    [processor] = with_processors(lease_table, 1)
    one, two = (Record("orders", 0, offset, 7, 0, None, None, (("X-RetryCount", b"1"),)) for offset in (4, 6))
    slow = HeldRecord(P[0], 6, b"slow")
    worker, other = Worker(), Worker()
    [number] = lease_table.plan(1)
    lease_table.grant(number, worker)
    lease_table.take_back([at(processor, 4, held=(slow,), retries=(one,))], worker)
    lease_table.close(number, worker)
    [number] = lease_table.plan(1)
    assert lease_table.grant(number, other).leases[0].retries == (one,)
    lease_table.note_retries(processor.number, [two])
    lease_table.release(processor.number, [slow], worker, is_settled=False)
    lease_table.take_back([at(processor, 4, retries=(one,))], other)
    lease_table.close(number, other)
    [number] = lease_table.plan(1)
    [lease] = lease_table.grant(number, other).leases
    assert {record.offset: record.headers for record in lease.retries} == {4: one.headers, 6: two.headers}


async def test_a_lease_identifies_its_logs(lease_table):
    """So that the worker notices when a log was cut or recreated."""
    processor = lease_table.new_processor("Orders", {P[0]: Start(7, leader_epoch=3)})
    old, new = uuid4(), uuid4()
    assert processor.note_ids({"orders": old, "others": new}) == frozenset()
    [number] = lease_table.plan(1)
    [lease] = lease_table.grant(number, worker := Worker()).leases
    assert lease.starts[P[0]] == Start(7, leader_epoch=3, topic_id=old)
    changed = replace(lease, log_resets={P[0]: LogReset(2, 5)})
    assert lease_from(json.loads(json.dumps(changed.to_json()))) == changed
    lease_table.take_back([at(processor, 9)], worker)
    assert processor.note_ids({}) == processor.note_ids({"orders": old}) == frozenset(), (
        "the id is unknown, or the same"
    )
    assert processor.note_ids({"orders": new}) == {"orders"}


async def test_outcomes_of_a_log_that_is_gone_do_not_count(lease_table):
    processor = lease_table.new_processor("Orders", {P[0]: Start(7)})
    processor.note_ids({"orders": uuid4()})
    slow = HeldRecord(P[0], 8, b"slow")
    retry = Record("orders", 0, 8, 0, 0, None, None)
    [number] = lease_table.plan(1)
    lease_table.grant(number, former := Worker())
    lease_table.take_back([at(processor, 8, ((9, 11),), held=(slow,), retries=(retry,))], former)
    lease_table.close(number, former)
    [number] = lease_table.plan(1)
    lease_table.grant(number, worker := Worker())
    lease_table.note_progress([at(processor, 2, log_resets={P[0]: LogReset(1, 0)})], worker)
    assert processor.note_ids({"orders": uuid4()}) == frozenset(), "the worker knows already"
    assert processor.note_ids({"orders": uuid4()}) == {"orders"}, "but not of yet another one"
    lease_table.release(processor.number, [slow], former, is_settled=False)
    lease_table.take_back([at(processor, 9)], worker)
    lease_table.close(number, worker)
    [number] = lease_table.plan(1)
    [lease] = lease_table.grant(number, worker).leases
    assert (lease.points[P[0]].offset, lease.held, lease.retries) == (9, (), ())


async def test_a_recreated_log_may_be_longer_than_the_old_one_was(lease_table):
    processor = lease_table.new_processor("Orders", {P[0]: Start(7)})
    processor.note_ids({"orders": uuid4()})
    slow = HeldRecord(P[0], 8, b"slow")
    [number] = lease_table.plan(1)
    lease_table.grant(number, former := Worker())
    lease_table.take_back([at(processor, 8, held=(slow,))], former)
    lease_table.close(number, former)
    [number] = lease_table.plan(1)
    lease_table.grant(number, worker := Worker())
    lease_table.note_progress([at(processor, 50, log_resets={P[0]: LogReset(1, 0)})], worker)
    assert processor.note_ids({"orders": uuid4()}) == frozenset()
    lease_table.release(processor.number, [slow], former, is_settled=False)
    assert processor.commit_point(P[0]).offset == 50, "offset 8 was one of the old log"


async def test_held_records_of_the_new_log_stay_held(lease_table):
    """However late its new id is known."""
    processor = lease_table.new_processor("Orders", {P[0]: Start(7)})
    processor.note_ids({"orders": uuid4()})
    [number] = lease_table.plan(1)
    lease_table.grant(number, former := Worker())
    slow, again = HeldRecord(P[0], 5, b"slow"), {P[0]: LogReset(1, 0)}
    lease_table.note_progress([at(processor, 3, log_resets=again)], former)
    lease_table.take_back([at(processor, 5, ((6, 9),), held=(slow,), log_resets=again)], former)
    lease_table.close(number, former)
    [number] = lease_table.plan(1)
    [lease] = lease_table.grant(number, worker := Worker()).leases
    assert lease.held == (slow,)
    assert processor.note_ids({"orders": uuid4()}) == frozenset()
    lease_table.note_progress([at(processor, 20)], worker)
    assert processor.commit_point(P[0]).offset == 5
    lease_table.lose(former)
    lease_table.take_back([at(processor, 20)], worker)
    lease_table.close(number, worker)
    [number] = lease_table.plan(1)
    assert lease_table.grant(number, worker).leases[0].points[P[0]].offset == 5, "it is not settled"


async def test_a_log_that_was_cut_keeps_what_is_in_flight_before_the_cut(lease_table):
    processor = lease_table.new_processor("Orders", {P[0]: Start(7)})
    before, behind = HeldRecord(P[0], 7, b"a"), HeldRecord(P[0], 12, b"b")
    [number] = lease_table.plan(1)
    lease_table.grant(number, former := Worker())
    lease_table.take_back([at(processor, 7, ((8, 11),), held=(before, behind))], former)
    lease_table.close(number, former)
    [number] = lease_table.plan(1)
    lease_table.grant(number, worker := Worker())
    lease_table.note_progress([at(processor, 30, log_resets={P[0]: LogReset(1, 10)})], worker)
    assert processor.commit_point(P[0]).offset == 7
    lease_table.release(processor.number, [before, behind], former, is_settled=True)
    assert processor.commit_point(P[0]).offset == 30


async def test_a_log_that_ends_before_its_position_is_work(lease_table):
    """It was recreated: the worker that reads it notices."""
    changes = []
    lease_table.on_change = lambda: changes.append(True)
    [processor] = with_processors(lease_table, 1)
    [number] = lease_table.plan(1)
    worker = Worker()
    lease_table.grant(number, worker)
    lease_table.take_back([at(processor, 100)], worker)
    lease_table.close(number, worker)
    lease_table.note_ends("Orders", {P[0]: 100})
    assert not changes
    lease_table.note_ends("Orders", {P[0]: 3})
    assert len(changes) == 1
    lease_table.note_unknown_ends("Orders", [P[0]])
    assert len(changes) == 2


async def test_every_executor_has_a_task_while_something_is_carried_over(lease_table):
    [processor] = with_processors(lease_table, 1)
    assert len(lease_table.plan(3)) == 1
    carry_over(lease_table, processor, Worker(), HeldRecord(P[0], 4, b"slow"))
    numbers = lease_table.plan(3)
    assert len(numbers) == 3
    task_leases = [lease_table.grant(number, Worker()) for number in numbers]
    assert [len(task_lease.leases) for task_lease in task_leases] == [1, 0, 0]
