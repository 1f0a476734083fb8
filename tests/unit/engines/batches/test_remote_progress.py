"""The progress of a partition, against a model: a set of settled offsets, and one of what is in flight elsewhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from multilane.commit.ledger import CommitPoint
from multilane.engines.batches.remote_progress import RemoteProgress, including, without
from multilane.lanes.assignment import Start

offsets = st.sets(st.integers(0, 40))


def start_of(settled: set[int]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Everything below the first that is missing, and the runs beyond."""
    frontier = next(offset for offset in range(100) if offset not in settled)
    return including((frontier, ()), {offset for offset in settled if offset > frontier})


def start(point: CommitPoint) -> tuple[int, tuple[tuple[int, int], ...]]:
    return point.offset, point.runs


def settled_in(start: tuple[int, tuple[tuple[int, int], ...]]) -> set[int]:
    offset, runs = start
    return {*range(offset), *(one for first, last in runs for one in range(first, last + 1))}


def check_form(start: tuple[int, tuple[tuple[int, int], ...]]) -> None:
    """As the completion map wants it: in order, apart from each other and beyond the offset."""
    before = start[0]
    for first, last in start[1]:
        assert before < first <= last
        before = last + 1


@given(offsets, offsets)
def test_adding_and_taking_away(settled, some):
    begun = start_of(settled)
    more, fewer = including(begun, some), without(begun, some)
    assert settled_in(more) == settled_in(begun) | some
    assert settled_in(fewer) == settled_in(begun) - some
    check_form(more)
    check_form(fewer)


@given(offsets, st.sets(st.integers(0, 40), max_size=4), st.data())
def test_held_offsets_are_settled_for_workers_and_not_for_the_group(settled, held, data):
    progress = RemoteProgress(Start(*start_of(settled)))
    progress.hold(held - settled)
    granted = start(progress.grant())
    assert settled_in(granted) >= held
    assert not settled_in((progress.point.offset, progress.point.runs)) & (held - settled)
    reported = including(granted, data.draw(offsets))
    progress.note(CommitPoint(reported[0], 3, reported[1]))
    for offset in held - settled:
        progress.release(offset, is_settled=data.draw(st.booleans()))
    point = progress.point
    check_form((point.offset, point.runs))
    again = start(progress.grant())
    assert settled_in(again) == settled_in((point.offset, point.runs)), "nothing is held: both see the same"


def test_undone_offsets_come_with_the_next_lease_and_not_before():
    progress = RemoteProgress(Start(5))
    progress.hold([5])
    assert start(progress.grant()) == (6, ())
    progress.release(5, is_settled=False)
    progress.note(CommitPoint(9, 0, ()))
    assert (progress.point.offset, progress.point.runs) == (5, ((6, 8),))
    assert progress.begins == 5
    assert start(progress.grant()) == (5, ((6, 8),))
    progress.note(CommitPoint(9, 0, ()))
    assert progress.point.offset == 9


def test_offsets_settled_by_former_workers_count():
    progress = RemoteProgress(Start(5))
    progress.hold([5, 7])
    assert start(progress.grant()) == (6, ((7, 7),))
    progress.note(CommitPoint(8, 2, ()))
    assert progress.point == CommitPoint(5, 2, ((6, 6),))
    progress.release(5, is_settled=True)
    assert progress.point == CommitPoint(7, 2, ())
    progress.release(7, is_settled=True)
    assert progress.point == CommitPoint(8, 2, ())


def test_the_leader_epoch_is_kept_while_the_offset_is():
    progress = RemoteProgress(Start(5, (), leader_epoch=7))
    assert progress.grant() == CommitPoint(5, 7, ())
    progress.note(CommitPoint(9, 8, ()))
    assert progress.grant() == CommitPoint(9, 8, ())
    progress.note(CommitPoint(9, -1, ((11, 20),)))
    assert progress.grant() == CommitPoint(9, 8, ((11, 20),)), "a worker whose offset has not moved does not know it"
    progress.hold([9])
    assert progress.grant() == CommitPoint(10, -1, ((11, 20),)), "no worker has reported the epoch there"


def test_a_commit_point_keeps_an_epoch_that_was_read():
    """Else a log that was truncated below it, and has other records there, would go unnoticed."""
    progress = RemoteProgress(Start(100, (), leader_epoch=3))
    progress.grant()
    progress.note(CommitPoint(100, 3, ((101, 200),), 5))
    progress.hold([100])
    assert progress.point == CommitPoint(100, 3, ((101, 200),), 5)
    assert progress.grant() == CommitPoint(201, 5, (), 5), "the next worker begins after the held offset"
    assert progress.point == CommitPoint(100, 5, ((101, 200),), 5), "what is committed meanwhile"
    progress.release(100, is_settled=True)
    assert progress.point == CommitPoint(201, 5, (), 5)


def test_offsets_settled_by_former_workers_have_the_newest_epoch_that_was_read():
    progress = RemoteProgress(Start(100, (), leader_epoch=3))
    progress.grant()
    progress.note(CommitPoint(100, 3, ((101, 200),), 4))
    progress.hold([100])
    progress.release(100, is_settled=True)
    assert progress.point == CommitPoint(201, 4, (), 4)


def test_held_offsets_of_a_log_that_was_cut_or_recreated_are_forgotten():
    """Else the record that takes its offset would be skipped."""
    progress = RemoteProgress(Start(5_000))
    progress.hold([8, 5_000])
    progress.grant()
    progress.forget_from(10)
    progress.note(CommitPoint(10, 1, ()))
    assert progress.point == CommitPoint(8, 1, ((9, 9),)), "what is in flight before the cut still is"
    assert start(progress.grant()) == (10, ())
    progress.note(CommitPoint(5_002, 1, ()))
    progress.release(8, is_settled=True)
    assert progress.point == CommitPoint(5_002, 1, ())
