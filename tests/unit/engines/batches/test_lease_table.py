"""Loans as a whole: who gets what, what counts of what is said, and what comes back when somebody is gone."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from uuid import uuid4

import pytest

from multilane.clock import SystemClock
from multilane.commit.ledger import CommitPoint
from multilane.engines.batches.lease_table import LeaseTable, LeaseTerms
from multilane.engines.batches.messages import Again, HeldRecord, PartitionLease, lease_from
from multilane.errors import LineLost
from multilane.lanes.assignment import Start
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

P = [TopicPartition("orders", number) for number in range(6)]


class Worker:
    """The other end of a line."""

    def __init__(self) -> None:
        self.said = []
        self.is_gone = False

    def send(self, kind, **fields):
        if self.is_gone:
            raise LineLost("gone")
        self.said.append((kind, fields))


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


async def test_a_batch_lends_everything_once(lease_table):
    processors = with_processors(lease_table, 5)
    first, second = lease_table.plan(2)
    one, two = Worker(), Worker()
    loans = [lease_table.lend(first, one), lease_table.lend(second, two)]
    lent = [unit.number for loan in loans for unit in loan.units]
    assert sorted(lent) == [processor.number for processor in processors]
    assert {len(loan.units) for loan in loans} == {2, 3}
    assert len(lease_table.plan(2)) == 2
    assert lease_table.lend(first, one) is None, "the batch before is over"


async def test_fewer_units_than_tasks_make_fewer_tasks(lease_table):
    assert lease_table.plan(4) == []
    with_processors(lease_table, 1)
    assert len(lease_table.plan(4)) == 1


async def test_there_is_work_when_a_log_goes_on_and_nobody_has_it(lease_table):
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
    lease_table.lend(number, worker)
    lease_table.give_back([at(processor, 2)], worker)
    lease_table.close(number, worker)
    assert lease_table.has_work, "the third is still to be done"
    assert len(changes) == 2


async def test_after_a_batch_that_settled_something_the_next_one_comes_at_once(lease_table):
    """A look at the logs' ends would keep waiting what has come since the last look."""
    changes = []
    lease_table.on_change = lambda: changes.append(True)
    [processor] = with_processors(lease_table, 1)
    lease_table.note_ends("Orders", {P[0]: 3})
    worker = Worker()
    [number] = lease_table.plan(1)
    lease_table.lend(number, worker)
    lease_table.give_back([at(processor, 3, settled=3)], worker)
    changes.clear()
    lease_table.close(number, worker)
    assert lease_table.has_work
    assert changes
    [number] = lease_table.plan(1)
    lease_table.lend(number, worker)
    lease_table.give_back([at(processor, 3)], worker)
    lease_table.close(number, worker)
    assert not lease_table.has_work, "one that settled nothing is the last until something comes"
    assert len(changes) == 1


async def test_a_task_that_never_said_a_word_does_not_hold_up_the_next_batch(lease_table):
    changes = []
    lease_table.on_change = lambda: changes.append(True)
    with_processors(lease_table, 1)
    lease_table.note_ends("Orders", {P[0]: 3})
    lease_table.plan(1)
    changes.clear()
    lease_table.note_ends("Orders", {P[0]: 4})
    assert not changes, "somebody has it, as far as is known"
    lease_table.end_batch()
    assert lease_table.has_work
    assert changes


async def test_batches_are_shorter_while_something_is_carried_over(lease_table):
    lease_table.terms = LeaseTerms(20.0, 0.5, carrying=10.0)
    [processor] = with_processors(lease_table, 1)
    worker = Worker()
    [number] = lease_table.plan(1)
    assert lease_table.lend(number, worker).seconds == 20.0
    lease_table.give_back([at(processor, 4, held=(HeldRecord(P[0], 4, b"slow"),))], worker)
    lease_table.close(number, worker)
    [number] = lease_table.plan(1)
    assert lease_table.lend(number, worker).seconds == 10.0, "its key may wait for the next batch"


async def test_a_task_that_is_started_again_goes_on_where_the_last_try_was(lease_table):
    [processor] = with_processors(lease_table, 1)
    [number] = lease_table.plan(1)
    first, second = Worker(), Worker()
    lease_table.lend(number, first)
    lease_table.tell([at(processor, 10, ((12, 15),))], first)
    lease_table.clock.now += 1.0
    lease_table.lose(first)
    loan = lease_table.lend(number, second)
    assert loan.seconds == pytest.approx(3.0), "how long it took to be started again is not its own time"
    assert loan.units[0].places[P[0]].offset == 10
    assert loan.units[0].places[P[0]].runs == ((12, 15),)
    lease_table.tell([at(processor, 99)], first)
    lease_table.close(number, first)
    assert processor.commit_point(P[0]).offset == 10, "nobody listens to the first one any more"
    lease_table.tell([at(processor, 20)], second)
    assert processor.commit_point(P[0]).offset == 20


async def test_two_tries_at_once_are_one(lease_table):
    """The first one's machine does not answer, and nobody knows yet that it is gone."""
    [processor] = with_processors(lease_table, 1)
    [number] = lease_table.plan(1)
    first, second = Worker(), Worker()
    lease_table.lend(number, first)
    lease_table.clock.now += 1.0
    assert lease_table.lend(number, second).seconds == pytest.approx(2.0)
    lease_table.tell([at(processor, 99)], first)
    assert processor.commit_point(P[0]).offset == 0


async def test_what_is_carried_over_is_not_lent_and_not_committed(lease_table):
    [processor] = with_processors(lease_table, 1)
    slow = HeldRecord(P[0], 4, b"slow")
    worker, other = Worker(), Worker()
    [number] = lease_table.plan(1)
    lease_table.lend(number, worker)
    lease_table.give_back([at(processor, 4, ((5, 9),), held=(slow,))], worker)
    lease_table.close(number, worker)
    assert processor.commit_point(P[0]).offset == 4
    assert lease_table.has_work, "a worker without a task would be ended, and what it is at with it"
    [number] = lease_table.plan(1)
    [unit] = lease_table.lend(number, other).units
    assert unit.places[P[0]].offset == 10
    assert unit.held == (slow,)
    lease_table.tell([at(processor, 20)], other)
    assert (processor.commit_point(P[0]).offset, processor.commit_point(P[0]).runs) == (4, ((5, 19),))
    lease_table.release(processor.number, [slow], worker, is_settled=True)
    assert processor.commit_point(P[0]).offset == 20
    assert processor.settled == 1


async def test_what_somebody_was_at_who_is_gone_is_lent_again(lease_table):
    [processor] = with_processors(lease_table, 1)
    slow = HeldRecord(P[0], 4, b"slow")
    worker, other = Worker(), Worker()
    [number] = lease_table.plan(1)
    lease_table.lend(number, worker)
    lease_table.give_back([at(processor, 4, ((5, 9),), held=(slow,))], worker)
    lease_table.close(number, worker)
    lease_table.lose(worker)
    [number] = lease_table.plan(1)
    [unit] = lease_table.lend(number, other).units
    assert (unit.places[P[0]].offset, unit.places[P[0]].runs, unit.held) == (4, ((5, 9),), ())


async def test_what_the_group_wants_back_is_asked_for_and_lent_no_more(lease_table):
    one, two = with_processors(lease_table, 2)
    worker = Worker()
    [number] = lease_table.plan(1)
    lease_table.lend(number, worker)
    draining = asyncio.create_task(one.drain(lease_table.clock.now + 5.0))
    await asyncio.wait([draining], timeout=0)
    assert ("back", {"unit": one.number, "seconds": 5.0}) in worker.said
    assert not draining.done()
    lease_table.give_back([at(one, 7)], worker)
    await draining
    assert one.commit_point(P[0]).offset == 7
    lease_table.give_back([at(two, 3)], worker)
    lease_table.close(number, worker)
    [number] = lease_table.plan(2)
    assert [unit.number for unit in lease_table.lend(number, worker).units] == [two.number]


async def test_one_that_nobody_has_is_given_back_at_once(lease_table):
    [processor] = with_processors(lease_table, 1)
    await asyncio.wait_for(processor.drain(lease_table.clock.now), 30.0)


async def test_one_that_is_wanted_back_waits_for_what_is_carried_over(lease_table):
    [processor] = with_processors(lease_table, 1)
    slow = HeldRecord(P[0], 0, b"slow")
    worker = Worker()
    [number] = lease_table.plan(1)
    lease_table.lend(number, worker)
    lease_table.give_back([at(processor, 0, held=(slow,))], worker)
    lease_table.close(number, worker)
    draining = asyncio.create_task(processor.drain(lease_table.clock.now + 5.0))
    await asyncio.wait([draining], timeout=0)
    assert worker.said[-1] == ("back", {"unit": processor.number, "seconds": 5.0})
    assert not draining.done()
    lease_table.release(processor.number, [slow], worker, is_settled=False)
    await draining


async def test_a_batch_ends_early_when_there_is_more_to_lend(lease_table):
    with_processors(lease_table, 1)
    worker = Worker()
    [number] = lease_table.plan(1)
    lease_table.lend(number, worker)
    lease_table.new_processor("Bills", {TopicPartition("bills", 0): Start(0)})
    assert worker.said[-1] == ("end", {})
    worker.is_gone = True
    lease_table.end_loans()


async def test_a_key_goes_on_when_its_call_has_ended_elsewhere(lease_table):
    [processor] = with_processors(lease_table, 1)
    slow = HeldRecord(P[0], 4, b"slow")
    worker, other = Worker(), Worker()
    carry_over(lease_table, processor, worker, slow)
    [number] = lease_table.plan(1)
    lease_table.lend(number, other)
    lease_table.release(processor.number, [slow], other, is_settled=True)
    assert other.said == [], "it is not at it"
    lease_table.release(processor.number, [slow], worker, is_settled=False)
    assert other.said == [], "what is undone comes first, with the next loan"
    assert processor.commit_point(P[0]).offset == 4
    again = HeldRecord(P[0], 4, b"slow")
    lease_table.give_back([at(processor, 10, held=())], other)
    lease_table.close(number, other)
    carry_over(lease_table, processor, worker, again)
    [number] = lease_table.plan(1)
    lease_table.lend(number, other)
    lease_table.release(processor.number, [again], worker, is_settled=True)
    assert other.said == [("freed", {"unit": processor.number, "held": [["orders", 0, 4, "c2xvdw==", True]]})]


def carry_over(lease_table, processor, worker, record):
    [number] = lease_table.plan(1)
    lease_table.lend(number, worker)
    lease_table.give_back([at(processor, 4, ((5, 9),), held=(record,))], worker)
    lease_table.close(number, worker)


async def test_attempts_are_known_from_loan_to_loan(lease_table):
    """Else a record that fails would never have failed often enough."""
    [processor] = with_processors(lease_table, 1)
    one, two = (Record("orders", 0, offset, 7, 0, None, None, (("X-RetryCount", b"1"),)) for offset in (4, 6))
    slow = HeldRecord(P[0], 6, b"slow")
    worker, other = Worker(), Worker()
    [number] = lease_table.plan(1)
    lease_table.lend(number, worker)
    lease_table.give_back([at(processor, 4, held=(slow,), tried=(one,))], worker)
    lease_table.close(number, worker)
    [number] = lease_table.plan(1)
    assert lease_table.lend(number, other).units[0].tried == (one,)
    lease_table.try_again(processor.number, [two])
    lease_table.release(processor.number, [slow], worker, is_settled=False)
    lease_table.give_back([at(processor, 4, tried=(one,))], other)
    lease_table.close(number, other)
    [number] = lease_table.plan(1)
    [unit] = lease_table.lend(number, other).units
    assert {record.offset: record.headers for record in unit.tried} == {4: one.headers, 6: two.headers}


async def test_what_is_known_of_a_log_goes_along(lease_table):
    """So that whoever reads it notices when it was cut or made anew."""
    processor = lease_table.new_processor("Orders", {P[0]: Start(7, leader_epoch=3)})
    old, new = uuid4(), uuid4()
    assert processor.note_ids({"orders": old, "others": new}) == frozenset()
    [number] = lease_table.plan(1)
    [unit] = lease_table.lend(number, worker := Worker()).units
    assert unit.starts[P[0]] == Start(7, leader_epoch=3, topic_id=old)
    told = replace(unit, began_again={P[0]: Again(2, 5)})
    assert lease_from(json.loads(json.dumps(told.to_json()))) == told
    lease_table.give_back([at(processor, 9)], worker)
    assert processor.note_ids({}) == processor.note_ids({"orders": old}) == frozenset(), (
        "nobody could tell, or nothing is new"
    )
    assert processor.note_ids({"orders": new}) == {"orders"}


async def test_what_comes_of_a_log_that_is_no_more_counts_for_nothing(lease_table):
    processor = lease_table.new_processor("Orders", {P[0]: Start(7)})
    processor.note_ids({"orders": uuid4()})
    slow = HeldRecord(P[0], 8, b"slow")
    tried = Record("orders", 0, 8, 0, 0, None, None)
    [number] = lease_table.plan(1)
    lease_table.lend(number, former := Worker())
    lease_table.give_back([at(processor, 8, ((9, 11),), held=(slow,), tried=(tried,))], former)
    lease_table.close(number, former)
    [number] = lease_table.plan(1)
    lease_table.lend(number, worker := Worker())
    lease_table.tell([at(processor, 2, began_again={P[0]: Again(1, 0)})], worker)
    assert processor.note_ids({"orders": uuid4()}) == frozenset(), "the borrower knows already"
    assert processor.note_ids({"orders": uuid4()}) == {"orders"}, "but not of yet another one"
    lease_table.release(processor.number, [slow], former, is_settled=False)
    lease_table.give_back([at(processor, 9)], worker)
    lease_table.close(number, worker)
    [number] = lease_table.plan(1)
    [unit] = lease_table.lend(number, worker).units
    assert (unit.places[P[0]].offset, unit.held, unit.tried) == (9, (), ())


async def test_a_log_that_was_made_anew_may_be_longer_than_the_old_one_was(lease_table):
    processor = lease_table.new_processor("Orders", {P[0]: Start(7)})
    processor.note_ids({"orders": uuid4()})
    slow = HeldRecord(P[0], 8, b"slow")
    [number] = lease_table.plan(1)
    lease_table.lend(number, former := Worker())
    lease_table.give_back([at(processor, 8, held=(slow,))], former)
    lease_table.close(number, former)
    [number] = lease_table.plan(1)
    lease_table.lend(number, worker := Worker())
    lease_table.tell([at(processor, 50, began_again={P[0]: Again(1, 0)})], worker)
    assert processor.note_ids({"orders": uuid4()}) == frozenset()
    lease_table.release(processor.number, [slow], former, is_settled=False)
    assert processor.commit_point(P[0]).offset == 50, "offset 8 was one of the old log"


async def test_what_is_held_of_the_new_log_stays_held(lease_table):
    """However late it is known that it is another one."""
    processor = lease_table.new_processor("Orders", {P[0]: Start(7)})
    processor.note_ids({"orders": uuid4()})
    [number] = lease_table.plan(1)
    lease_table.lend(number, former := Worker())
    slow, again = HeldRecord(P[0], 5, b"slow"), {P[0]: Again(1, 0)}
    lease_table.tell([at(processor, 3, began_again=again)], former)
    lease_table.give_back([at(processor, 5, ((6, 9),), held=(slow,), began_again=again)], former)
    lease_table.close(number, former)
    [number] = lease_table.plan(1)
    [unit] = lease_table.lend(number, worker := Worker()).units
    assert unit.held == (slow,)
    assert processor.note_ids({"orders": uuid4()}) == frozenset()
    lease_table.tell([at(processor, 20)], worker)
    assert processor.commit_point(P[0]).offset == 5
    lease_table.lose(former)
    lease_table.give_back([at(processor, 20)], worker)
    lease_table.close(number, worker)
    [number] = lease_table.plan(1)
    assert lease_table.lend(number, worker).units[0].places[P[0]].offset == 5, "nobody has done it"


async def test_a_log_that_was_cut_keeps_what_is_in_work_before_the_cut(lease_table):
    processor = lease_table.new_processor("Orders", {P[0]: Start(7)})
    before, behind = HeldRecord(P[0], 7, b"a"), HeldRecord(P[0], 12, b"b")
    [number] = lease_table.plan(1)
    lease_table.lend(number, former := Worker())
    lease_table.give_back([at(processor, 7, ((8, 11),), held=(before, behind))], former)
    lease_table.close(number, former)
    [number] = lease_table.plan(1)
    lease_table.lend(number, worker := Worker())
    lease_table.tell([at(processor, 30, began_again={P[0]: Again(1, 10)})], worker)
    assert processor.commit_point(P[0]).offset == 7
    lease_table.release(processor.number, [before, behind], former, is_settled=True)
    assert processor.commit_point(P[0]).offset == 30


async def test_a_log_that_ends_before_its_place_is_looked_at(lease_table):
    """It was made anew: whoever reads it notices."""
    changes = []
    lease_table.on_change = lambda: changes.append(True)
    [processor] = with_processors(lease_table, 1)
    [number] = lease_table.plan(1)
    worker = Worker()
    lease_table.lend(number, worker)
    lease_table.give_back([at(processor, 100)], worker)
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
    loans = [lease_table.lend(number, Worker()) for number in numbers]
    assert [len(loan.units) for loan in loans] == [1, 0, 0]
