"""Where a partition stands, and where it would stand without what the last poll handed out."""

from __future__ import annotations

from multilane.client.fetch.cursor import At, AtCommitted
from multilane.client.partition_state import PartitionState
from multilane.types import LeaderEpoch, Offset, OffsetAndMetadata

EPOCH = LeaderEpoch(3)


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(Offset(offset), EPOCH)


def started(offset: int) -> PartitionState:
    return PartitionState(1, At(Offset(offset), EPOCH))


def test_what_one_poll_hands_out_is_not_done_with():
    state = started(5)
    state.advance(Offset(7), EPOCH, poll=1)
    state.advance(Offset(9), EPOCH, poll=1)
    assert (state.to_commit(), state.before) == (at(9), at(5))
    state.advance(Offset(12), EPOCH, poll=2)
    assert (state.to_commit(), state.before) == (at(12), at(9))


def test_where_the_log_puts_us_is_where_a_poll_begins():
    """The topic was made anew, or truncated, or nothing was committed: the old place means nothing in this log."""
    state = started(5000)
    state.reset_to(Offset(0), EPOCH, poll=1)
    state.advance(Offset(10), EPOCH, poll=1)
    assert (state.to_commit(), state.before) == (at(10), at(0))


def test_so_it_is_in_the_middle_of_one():
    state = started(90)
    state.advance(Offset(100), EPOCH, poll=1)
    state.reset_to(Offset(80), EPOCH, poll=1)
    state.advance(Offset(85), EPOCH, poll=1)
    assert (state.to_commit(), state.before) == (at(85), at(80))


def test_a_first_place_is_one_too():
    state = PartitionState(1, AtCommitted())
    assert state.to_commit() is None
    state.reset_to(Offset(1000), EPOCH, poll=1)
    state.advance(Offset(1001), EPOCH, poll=1)
    assert state.before == at(1000)
