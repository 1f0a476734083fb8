from __future__ import annotations

import numpy as np
import pytest

from multilane.commit.completion_map import MOST_RUNS, decode, encode
from multilane.commit.ledger import CommitPoint, Ledger
from multilane.types import NO_EPOCH


def test_the_frontier_is_the_lowest_that_is_not_settled():
    ledger = Ledger(5)
    ledger.hand_out([5, 6, 9])
    ledger.advance(10)
    ledger.settle(6)
    assert (ledger.frontier, ledger.commit_point().runs) == (5, ((6, 8),))
    ledger.settle(5)
    assert (ledger.frontier, ledger.commit_point().runs) == (9, ())
    ledger.settle(9)
    assert ledger.frontier == 10


def test_offsets_that_the_log_does_not_have_are_not_waited_for():
    ledger = Ledger(0)
    ledger.hand_out([3, 7])
    ledger.advance(20)
    ledger.settle(7)
    assert ledger.commit_point().runs == ((4, 19),)
    ledger.settle(3)
    assert ledger.frontier == 20


def test_settling_twice_or_what_was_never_handed_out_is_a_mistake():
    ledger = Ledger(0)
    ledger.hand_out([1])
    ledger.settle(1)
    with pytest.raises(KeyError):
        ledger.settle(1)


def test_the_position_never_goes_back():
    ledger = Ledger(7)
    with pytest.raises(ValueError, match="back to 6"):
        ledger.advance(6)


def test_what_was_settled_before_is_not_fresh():
    ledger = Ledger(10, ((12, 13), (20, 29)))
    assert ledger.fresh(np.array([10, 11])) is None
    assert ledger.fresh(np.array([10, 12, 13, 14, 20, 30])).tolist() == [True, False, False, True, False, True]
    assert ledger.fresh(np.array([30, 31])) is None


def test_runs_settled_before_are_passed_on_before_they_are_read():
    ledger = Ledger(10, ((12, 13), (20, 29)))
    ledger.hand_out([10, 11])
    ledger.advance(12)
    assert ledger.commit_point().runs == ((12, 13), (20, 29))
    ledger.settle(11)
    assert ledger.commit_point().runs == ((11, 13), (20, 29))
    ledger.settle(10)
    assert (ledger.frontier, ledger.commit_point().runs) == (12, ((13, 13), (20, 29)))
    ledger.advance(14)
    assert (ledger.frontier, ledger.commit_point().runs) == (14, ((20, 29),))


def test_no_more_runs_are_returned_than_a_commit_can_hold():
    ledger = Ledger(0)
    ledger.hand_out(range(20_000))
    ledger.advance(20_000)
    for offset in range(1, 20_000, 2):
        ledger.settle(offset)
    runs = ledger.commit_point().runs
    assert runs == tuple((offset, offset) for offset in range(1, 2 * MOST_RUNS, 2))
    assert 0 < len(decode(encode(0, runs), 0)) < MOST_RUNS


def test_the_epoch_is_that_of_the_last_record_below_the_frontier():
    ledger = Ledger(0)
    ledger.hand_out([0, 1])
    ledger.advance(2, 4)
    ledger.hand_out([2, 3])
    ledger.advance(4, 5)
    ledger.settle(0)
    assert ledger.commit_point().leader_epoch == 4
    ledger.settle(1)
    assert ledger.commit_point().leader_epoch == 4
    ledger.settle(2)
    assert ledger.commit_point().leader_epoch == 5


def test_where_reading_began_the_epoch_is_the_one_that_was_known_there():
    ledger = Ledger(7, start_epoch=2)
    assert ledger.commit_point().leader_epoch == 2
    ledger.hand_out([7])
    ledger.advance(8, 4)
    assert ledger.commit_point().leader_epoch == 2
    ledger.settle(7)
    assert ledger.commit_point().leader_epoch == 4


def test_where_reading_began_without_an_epoch_the_first_that_is_read_is_used():
    """A record may be kept there for long: its log must not be truncated unnoticed meanwhile."""
    ledger = Ledger(7)
    assert ledger.commit_point().leader_epoch == NO_EPOCH, "nothing was read"
    ledger.hand_out([7, 8])
    ledger.advance(8, 4)
    ledger.advance(9, 5)
    assert ledger.commit_point().leader_epoch == 4
    ledger.settle(8)
    assert ledger.commit_point() == CommitPoint(7, 4, ((8, 8),), 5)


def test_an_epoch_that_is_too_low_is_not_returned():
    """A consumer that begins there would find the log truncated."""
    ledger = Ledger(0)
    ledger.advance(10, 3)
    ledger.advance(11)  # by a caller that does not know it
    assert ledger.commit_point() == CommitPoint(11, NO_EPOCH, ())
    ledger.advance(12, 4)
    assert ledger.commit_point() == CommitPoint(12, 4, (), 4)


def test_what_others_have_settled_beyond_the_position_has_an_epoch_that_they_know():
    ledger = Ledger(0, [(5, 9)], 7)
    ledger.advance(5, 3)
    assert ledger.commit_point() == CommitPoint(5, 3, ((6, 9),), 7)
    ledger.advance(12, 8)
    assert ledger.commit_point() == CommitPoint(12, 8, (), 8)


@pytest.mark.parametrize("in_bulk", [False, True])
def test_nothing_is_committed_that_was_not_read(in_bulk):
    """However far a commit claims that all is settled."""
    ledger = Ledger(5, [(6, 2**62)], 0, in_bulk=in_bulk)
    ledger.hand_out([5])
    ledger.advance(6, 0)
    ledger.settle(5)
    assert ledger.commit_point() == CommitPoint(6, 0, ((7, 2**62),), 0)
    ledger.advance(1_000, 0)
    assert ledger.commit_point().offset == 1_000


def test_a_newer_epoch_below_the_end_of_what_was_settled_contradicts_it():
    ledger = Ledger(0, [(5, 9)], 7)
    assert not ledger.contradicts(7)
    assert ledger.contradicts(8)
    ledger.forget_done()
    assert not ledger.contradicts(8)
    assert not Ledger(0, [(5, 9)]).contradicts(8), "nobody knows the epoch"


def test_one_that_stays_open_keeps_nothing_else():
    ledger = Ledger(0, in_bulk=True)
    ledger.hand_out([0])
    for start in range(1, 200_000, 500):
        ledger.hand_out(np.arange(start, start + 500))
        ledger.advance(start + 500)
        ledger.settle_all(np.arange(start, start + 500))
    assert (ledger.frontier, ledger.unsettled, len(ledger)) == (0, (0,), 1)
    assert ledger.commit_point().runs == ((1, ledger.position - 1),)
    assert len(ledger._open._flagged.values) < 5_000
