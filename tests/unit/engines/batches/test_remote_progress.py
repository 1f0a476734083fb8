"""The account of a partition against a model: a set of settled offsets, and one of what is in work elsewhere."""

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


def start(place: CommitPoint) -> tuple[int, tuple[tuple[int, int], ...]]:
    return place.offset, place.runs


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
def test_what_is_held_is_settled_for_borrowers_and_not_for_the_group(settled, held, data):
    account = RemoteProgress(Start(*start_of(settled)))
    account.hold(held - settled)
    lent = start(account.lend())
    assert settled_in(lent) >= held
    assert not settled_in((account.place.offset, account.place.runs)) & (held - settled)
    told = including(lent, data.draw(offsets))
    account.tell(CommitPoint(told[0], 3, told[1]))
    for offset in held - settled:
        account.release(offset, is_settled=data.draw(st.booleans()))
    place = account.place
    check_form((place.offset, place.runs))
    again = start(account.lend())
    assert settled_in(again) == settled_in((place.offset, place.runs)), "nobody is at anything: both see the same"


def test_what_was_given_up_comes_with_the_next_loan_and_not_before():
    account = RemoteProgress(Start(5))
    account.hold([5])
    assert start(account.lend()) == (6, ())
    account.release(5, is_settled=False)
    account.tell(CommitPoint(9, 0, ()))
    assert (account.place.offset, account.place.runs) == (5, ((6, 8),))
    assert account.begins == 5
    assert start(account.lend()) == (5, ((6, 8),))
    account.tell(CommitPoint(9, 0, ()))
    assert account.place.offset == 9


def test_what_ended_well_elsewhere_counts():
    account = RemoteProgress(Start(5))
    account.hold([5, 7])
    assert start(account.lend()) == (6, ((7, 7),))
    account.tell(CommitPoint(8, 2, ()))
    assert account.place == CommitPoint(5, 2, ((6, 6),))
    account.release(5, is_settled=True)
    assert account.place == CommitPoint(7, 2, ())
    account.release(7, is_settled=True)
    assert account.place == CommitPoint(8, 2, ())


def test_the_leaders_epoch_goes_along_while_it_is_that_of_the_place():
    account = RemoteProgress(Start(5, (), leader_epoch=7))
    assert account.lend() == CommitPoint(5, 7, ())
    account.tell(CommitPoint(9, 8, ()))
    assert account.lend() == CommitPoint(9, 8, ())
    account.tell(CommitPoint(9, -1, ((11, 20),)))
    assert account.lend() == CommitPoint(9, 8, ((11, 20),)), "a borrower that has not got on does not know it"
    account.hold([9])
    assert account.lend() == CommitPoint(10, -1, ((11, 20),)), "nobody has said which it was there"


def test_a_place_is_never_without_an_epoch_where_one_was_read():
    """Else nobody would notice that the log was cut below it and has other records there."""
    account = RemoteProgress(Start(100, (), leader_epoch=3))
    account.lend()
    account.tell(CommitPoint(100, 3, ((101, 200),), 5))
    account.hold([100])
    assert account.place == CommitPoint(100, 3, ((101, 200),), 5)
    assert account.lend() == CommitPoint(201, 5, (), 5), "the next borrower begins behind what is carried over"
    assert account.place == CommitPoint(100, 5, ((101, 200),), 5), "what is committed meanwhile"
    account.release(100, is_settled=True)
    assert account.place == CommitPoint(201, 5, (), 5)


def test_what_ends_elsewhere_has_the_newest_epoch_that_was_read():
    account = RemoteProgress(Start(100, (), leader_epoch=3))
    account.lend()
    account.tell(CommitPoint(100, 3, ((101, 200),), 4))
    account.hold([100])
    account.release(100, is_settled=True)
    assert account.place == CommitPoint(201, 4, (), 4)


def test_what_was_held_of_a_log_that_was_cut_or_made_anew_is_no_more():
    """Else the record that takes its offset would be passed over."""
    account = RemoteProgress(Start(5_000))
    account.hold([8, 5_000])
    account.lend()
    account.forget_from(10)
    account.tell(CommitPoint(10, 1, ()))
    assert account.place == CommitPoint(8, 1, ((9, 9),)), "what is in work before the cut is in work still"
    assert start(account.lend()) == (10, ())
    account.tell(CommitPoint(5_002, 1, ()))
    account.release(8, is_settled=True)
    assert account.place == CommitPoint(5_002, 1, ())
