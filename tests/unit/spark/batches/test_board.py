"""Loans as a whole: who gets what, what counts of what is said, and what comes back when somebody is gone."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from uuid import uuid4

import pytest

from multilane.clock import SystemClock
from multilane.commit.ledger import Place
from multilane.errors import LineLost
from multilane.lanes.holding import Start
from multilane.spark.batches.board import Board, LoanTerms
from multilane.spark.batches.terms import Again, HeldRecord, Unit, unit_from
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
def board():
    return Board(Ticking(), LoanTerms(3.0, 0.5))


def with_teams(board, many=2):
    return [board.new_team("Orders", {P[at]: Start(0)}) for at in range(many)]


def at(team, offset, runs=(), **more):
    [partition] = team.partitions
    return Unit(team.number, team.consumer, {partition: Place(offset, 0, runs)}, **more)


async def test_a_batch_lends_everything_once(board):
    teams = with_teams(board, 5)
    first, second = board.plan(2)
    one, two = Worker(), Worker()
    loans = [board.lend(first, one), board.lend(second, two)]
    lent = [unit.number for loan in loans for unit in loan.units]
    assert sorted(lent) == [team.number for team in teams]
    assert {len(loan.units) for loan in loans} == {2, 3}
    assert len(board.plan(2)) == 2
    assert board.lend(first, one) is None, "the batch before is over"


async def test_fewer_units_than_tasks_make_fewer_tasks(board):
    assert board.plan(4) == []
    with_teams(board, 1)
    assert len(board.plan(4)) == 1


async def test_there_is_work_when_a_log_goes_on_and_nobody_has_it(board):
    changes = []
    board.on_change = lambda: changes.append(True)
    [team] = with_teams(board, 1)
    board.note_ends("Orders", {P[0]: 0})
    assert not board.has_work
    assert not changes
    board.note_ends("Orders", {P[0]: 3})
    assert board.has_work
    assert changes
    [number] = board.plan(1)
    assert not board.has_work
    worker = Worker()
    board.lend(number, worker)
    board.give_back([at(team, 2)], worker)
    board.close(number, worker)
    assert board.has_work, "the third is still to be done"
    assert len(changes) == 2


async def test_after_a_batch_that_settled_something_the_next_one_comes_at_once(board):
    """A look at the logs' ends would keep waiting what has come since the last look."""
    changes = []
    board.on_change = lambda: changes.append(True)
    [team] = with_teams(board, 1)
    board.note_ends("Orders", {P[0]: 3})
    worker = Worker()
    [number] = board.plan(1)
    board.lend(number, worker)
    board.give_back([at(team, 3, settled=3)], worker)
    changes.clear()
    board.close(number, worker)
    assert board.has_work
    assert changes
    [number] = board.plan(1)
    board.lend(number, worker)
    board.give_back([at(team, 3)], worker)
    board.close(number, worker)
    assert not board.has_work, "one that settled nothing is the last until something comes"
    assert len(changes) == 1


async def test_a_task_that_never_said_a_word_does_not_hold_up_the_next_batch(board):
    changes = []
    board.on_change = lambda: changes.append(True)
    with_teams(board, 1)
    board.note_ends("Orders", {P[0]: 3})
    board.plan(1)
    changes.clear()
    board.note_ends("Orders", {P[0]: 4})
    assert not changes, "somebody has it, as far as is known"
    board.end_batch()
    assert board.has_work
    assert changes


async def test_batches_are_shorter_while_something_is_carried_over(board):
    board.terms = LoanTerms(20.0, 0.5, carrying=10.0)
    [team] = with_teams(board, 1)
    worker = Worker()
    [number] = board.plan(1)
    assert board.lend(number, worker).seconds == 20.0
    board.give_back([at(team, 4, held=(HeldRecord(P[0], 4, b"slow"),))], worker)
    board.close(number, worker)
    [number] = board.plan(1)
    assert board.lend(number, worker).seconds == 10.0, "its key may wait for the next batch"


async def test_a_task_that_is_started_again_goes_on_where_the_last_try_was(board):
    [team] = with_teams(board, 1)
    [number] = board.plan(1)
    first, second = Worker(), Worker()
    board.lend(number, first)
    board.tell([at(team, 10, ((12, 15),))], first)
    board.clock.now += 1.0
    board.lose(first)
    loan = board.lend(number, second)
    assert loan.seconds == pytest.approx(3.0), "how long it took to be started again is not its own time"
    assert loan.units[0].places[P[0]].offset == 10
    assert loan.units[0].places[P[0]].runs == ((12, 15),)
    board.tell([at(team, 99)], first)
    board.close(number, first)
    assert team.place(P[0]).offset == 10, "nobody listens to the first one any more"
    board.tell([at(team, 20)], second)
    assert team.place(P[0]).offset == 20


async def test_two_tries_at_once_are_one(board):
    """The first one's machine does not answer, and nobody knows yet that it is gone."""
    [team] = with_teams(board, 1)
    [number] = board.plan(1)
    first, second = Worker(), Worker()
    board.lend(number, first)
    board.clock.now += 1.0
    assert board.lend(number, second).seconds == pytest.approx(2.0)
    board.tell([at(team, 99)], first)
    assert team.place(P[0]).offset == 0


async def test_what_is_carried_over_is_not_lent_and_not_committed(board):
    [team] = with_teams(board, 1)
    slow = HeldRecord(P[0], 4, b"slow")
    worker, other = Worker(), Worker()
    [number] = board.plan(1)
    board.lend(number, worker)
    board.give_back([at(team, 4, ((5, 9),), held=(slow,))], worker)
    board.close(number, worker)
    assert team.place(P[0]).offset == 4
    assert board.has_work, "a worker without a task would be ended, and what it is at with it"
    [number] = board.plan(1)
    [unit] = board.lend(number, other).units
    assert unit.places[P[0]].offset == 10
    assert unit.held == (slow,)
    board.tell([at(team, 20)], other)
    assert (team.place(P[0]).offset, team.place(P[0]).runs) == (4, ((5, 19),))
    board.release(team.number, [slow], worker, is_settled=True)
    assert team.place(P[0]).offset == 20
    assert team.settled == 1


async def test_what_somebody_was_at_who_is_gone_is_lent_again(board):
    [team] = with_teams(board, 1)
    slow = HeldRecord(P[0], 4, b"slow")
    worker, other = Worker(), Worker()
    [number] = board.plan(1)
    board.lend(number, worker)
    board.give_back([at(team, 4, ((5, 9),), held=(slow,))], worker)
    board.close(number, worker)
    board.lose(worker)
    [number] = board.plan(1)
    [unit] = board.lend(number, other).units
    assert (unit.places[P[0]].offset, unit.places[P[0]].runs, unit.held) == (4, ((5, 9),), ())


async def test_what_the_group_wants_back_is_asked_for_and_lent_no_more(board):
    one, two = with_teams(board, 2)
    worker = Worker()
    [number] = board.plan(1)
    board.lend(number, worker)
    draining = asyncio.create_task(one.drain(board.clock.now + 5.0))
    await asyncio.wait([draining], timeout=0)
    assert ("back", {"unit": one.number, "seconds": 5.0}) in worker.said
    assert not draining.done()
    board.give_back([at(one, 7)], worker)
    await draining
    assert one.place(P[0]).offset == 7
    board.give_back([at(two, 3)], worker)
    board.close(number, worker)
    [number] = board.plan(2)
    assert [unit.number for unit in board.lend(number, worker).units] == [two.number]


async def test_one_that_nobody_has_is_given_back_at_once(board):
    [team] = with_teams(board, 1)
    await asyncio.wait_for(team.drain(board.clock.now), 30.0)


async def test_one_that_is_wanted_back_waits_for_what_is_carried_over(board):
    [team] = with_teams(board, 1)
    slow = HeldRecord(P[0], 0, b"slow")
    worker = Worker()
    [number] = board.plan(1)
    board.lend(number, worker)
    board.give_back([at(team, 0, held=(slow,))], worker)
    board.close(number, worker)
    draining = asyncio.create_task(team.drain(board.clock.now + 5.0))
    await asyncio.wait([draining], timeout=0)
    assert worker.said[-1] == ("back", {"unit": team.number, "seconds": 5.0})
    assert not draining.done()
    board.release(team.number, [slow], worker, is_settled=False)
    await draining


async def test_a_batch_ends_early_when_there_is_more_to_lend(board):
    with_teams(board, 1)
    worker = Worker()
    [number] = board.plan(1)
    board.lend(number, worker)
    board.new_team("Bills", {TopicPartition("bills", 0): Start(0)})
    assert worker.said[-1] == ("end", {})
    worker.is_gone = True
    board.end_loans()


async def test_a_key_goes_on_when_its_call_has_ended_elsewhere(board):
    [team] = with_teams(board, 1)
    slow = HeldRecord(P[0], 4, b"slow")
    worker, other = Worker(), Worker()
    carry_over(board, team, worker, slow)
    [number] = board.plan(1)
    board.lend(number, other)
    board.release(team.number, [slow], other, is_settled=True)
    assert other.said == [], "it is not at it"
    board.release(team.number, [slow], worker, is_settled=False)
    assert other.said == [], "what is undone comes first, with the next loan"
    assert team.place(P[0]).offset == 4
    again = HeldRecord(P[0], 4, b"slow")
    board.give_back([at(team, 10, held=())], other)
    board.close(number, other)
    carry_over(board, team, worker, again)
    [number] = board.plan(1)
    board.lend(number, other)
    board.release(team.number, [again], worker, is_settled=True)
    assert other.said == [("freed", {"unit": team.number, "held": [["orders", 0, 4, "c2xvdw==", True]]})]


def carry_over(board, team, worker, record):
    [number] = board.plan(1)
    board.lend(number, worker)
    board.give_back([at(team, 4, ((5, 9),), held=(record,))], worker)
    board.close(number, worker)


async def test_attempts_are_known_from_loan_to_loan(board):
    """Else a record that fails would never have failed often enough."""
    [team] = with_teams(board, 1)
    one, two = (Record("orders", 0, offset, 7, 0, None, None, (("X-RetryCount", b"1"),)) for offset in (4, 6))
    slow = HeldRecord(P[0], 6, b"slow")
    worker, other = Worker(), Worker()
    [number] = board.plan(1)
    board.lend(number, worker)
    board.give_back([at(team, 4, held=(slow,), tried=(one,))], worker)
    board.close(number, worker)
    [number] = board.plan(1)
    assert board.lend(number, other).units[0].tried == (one,)
    board.try_again(team.number, [two])
    board.release(team.number, [slow], worker, is_settled=False)
    board.give_back([at(team, 4, tried=(one,))], other)
    board.close(number, other)
    [number] = board.plan(1)
    [unit] = board.lend(number, other).units
    assert {record.offset: record.headers for record in unit.tried} == {4: one.headers, 6: two.headers}


async def test_what_is_known_of_a_log_goes_along(board):
    """So that whoever reads it notices when it was cut or made anew."""
    team = board.new_team("Orders", {P[0]: Start(7, leader_epoch=3)})
    old, new = uuid4(), uuid4()
    assert team.note_ids({"orders": old, "others": new}) == frozenset()
    [number] = board.plan(1)
    [unit] = board.lend(number, worker := Worker()).units
    assert unit.starts[P[0]] == Start(7, leader_epoch=3, topic_id=old)
    told = replace(unit, began_again={P[0]: Again(2, 5)})
    assert unit_from(json.loads(json.dumps(told.to_json()))) == told
    board.give_back([at(team, 9)], worker)
    assert team.note_ids({}) == team.note_ids({"orders": old}) == frozenset(), "nobody could tell, or nothing is new"
    assert team.note_ids({"orders": new}) == {"orders"}


async def test_what_comes_of_a_log_that_is_no_more_counts_for_nothing(board):
    team = board.new_team("Orders", {P[0]: Start(7)})
    team.note_ids({"orders": uuid4()})
    slow = HeldRecord(P[0], 8, b"slow")
    tried = Record("orders", 0, 8, 0, 0, None, None)
    [number] = board.plan(1)
    board.lend(number, former := Worker())
    board.give_back([at(team, 8, ((9, 11),), held=(slow,), tried=(tried,))], former)
    board.close(number, former)
    [number] = board.plan(1)
    board.lend(number, worker := Worker())
    board.tell([at(team, 2, began_again={P[0]: Again(1, 0)})], worker)
    assert team.note_ids({"orders": uuid4()}) == frozenset(), "the borrower knows already"
    assert team.note_ids({"orders": uuid4()}) == {"orders"}, "but not of yet another one"
    board.release(team.number, [slow], former, is_settled=False)
    board.give_back([at(team, 9)], worker)
    board.close(number, worker)
    [number] = board.plan(1)
    [unit] = board.lend(number, worker).units
    assert (unit.places[P[0]].offset, unit.held, unit.tried) == (9, (), ())


async def test_a_log_that_was_made_anew_may_be_longer_than_the_old_one_was(board):
    team = board.new_team("Orders", {P[0]: Start(7)})
    team.note_ids({"orders": uuid4()})
    slow = HeldRecord(P[0], 8, b"slow")
    [number] = board.plan(1)
    board.lend(number, former := Worker())
    board.give_back([at(team, 8, held=(slow,))], former)
    board.close(number, former)
    [number] = board.plan(1)
    board.lend(number, worker := Worker())
    board.tell([at(team, 50, began_again={P[0]: Again(1, 0)})], worker)
    assert team.note_ids({"orders": uuid4()}) == frozenset()
    board.release(team.number, [slow], former, is_settled=False)
    assert team.place(P[0]).offset == 50, "offset 8 was one of the old log"


async def test_what_is_held_of_the_new_log_stays_held(board):
    """However late it is known that it is another one."""
    team = board.new_team("Orders", {P[0]: Start(7)})
    team.note_ids({"orders": uuid4()})
    [number] = board.plan(1)
    board.lend(number, former := Worker())
    slow, again = HeldRecord(P[0], 5, b"slow"), {P[0]: Again(1, 0)}
    board.tell([at(team, 3, began_again=again)], former)
    board.give_back([at(team, 5, ((6, 9),), held=(slow,), began_again=again)], former)
    board.close(number, former)
    [number] = board.plan(1)
    [unit] = board.lend(number, worker := Worker()).units
    assert unit.held == (slow,)
    assert team.note_ids({"orders": uuid4()}) == frozenset()
    board.tell([at(team, 20)], worker)
    assert team.place(P[0]).offset == 5
    board.lose(former)
    board.give_back([at(team, 20)], worker)
    board.close(number, worker)
    [number] = board.plan(1)
    assert board.lend(number, worker).units[0].places[P[0]].offset == 5, "nobody has done it"


async def test_a_log_that_was_cut_keeps_what_is_in_work_before_the_cut(board):
    team = board.new_team("Orders", {P[0]: Start(7)})
    before, behind = HeldRecord(P[0], 7, b"a"), HeldRecord(P[0], 12, b"b")
    [number] = board.plan(1)
    board.lend(number, former := Worker())
    board.give_back([at(team, 7, ((8, 11),), held=(before, behind))], former)
    board.close(number, former)
    [number] = board.plan(1)
    board.lend(number, worker := Worker())
    board.tell([at(team, 30, began_again={P[0]: Again(1, 10)})], worker)
    assert team.place(P[0]).offset == 7
    board.release(team.number, [before, behind], former, is_settled=True)
    assert team.place(P[0]).offset == 30


async def test_a_log_that_ends_before_its_place_is_looked_at(board):
    """It was made anew: whoever reads it notices."""
    changes = []
    board.on_change = lambda: changes.append(True)
    [team] = with_teams(board, 1)
    [number] = board.plan(1)
    worker = Worker()
    board.lend(number, worker)
    board.give_back([at(team, 100)], worker)
    board.close(number, worker)
    board.note_ends("Orders", {P[0]: 100})
    assert not changes
    board.note_ends("Orders", {P[0]: 3})
    assert len(changes) == 1
    board.note_unknown_ends("Orders", [P[0]])
    assert len(changes) == 2


async def test_every_executor_has_a_task_while_something_is_carried_over(board):
    [team] = with_teams(board, 1)
    assert len(board.plan(3)) == 1
    carry_over(board, team, Worker(), HeldRecord(P[0], 4, b"slow"))
    numbers = board.plan(3)
    assert len(numbers) == 3
    loans = [board.lend(number, Worker()) for number in numbers]
    assert [len(loan.units) for loan in loans] == [1, 0, 0]
