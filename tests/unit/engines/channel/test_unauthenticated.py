"""Which callers are evicted when there are too many, or when they take too long."""

from __future__ import annotations

import pytest

from multilane.engines.channel.unauthenticated import (
    FIRST_MESSAGE_SECONDS,
    HANDSHAKE_SECONDS,
    MAX_CALLERS,
    MAX_CALLERS_PER_ADDRESS,
    UnauthenticatedCallers,
)


def many(count, host=None, most=4, most_of_one=4):
    callers = UnauthenticatedCallers(most, most_of_one)
    for number in range(count):
        assert callers.add(number, host or f"host {number}", 0.0) is None
    return callers


def test_the_oldest_silent_one_goes():
    callers = many(4)
    assert callers.add("new", "a", 0.0) == 0
    assert callers.add("newer", "b", 0.0) == 1
    assert len(callers) == 4


def test_a_caller_that_has_sent_stays_while_others_are_silent():
    callers = many(4)
    for number in (0, 1, 3):
        callers.note_message(number)
    assert callers.add("new", "a", 0.0) == 2
    assert callers.add("newer", "b", 0.0) == "new"
    callers.note_message("newer")
    assert callers.add("newest", "c", 0.0) == 0


def test_one_address_evicts_its_own():
    callers = many(2, host="flood", most=8, most_of_one=2)
    for number in range(6):
        callers.add(f"other {number}", f"host {number}", 0.0)
    assert callers.add("new", "flood", 0.0) == 0
    assert callers.add("newer", "flood", 0.0) == 1
    callers.note_message("new")
    callers.note_message("newer")
    assert callers.add("newest", "flood", 0.0) == "new"
    assert len(callers) == 8


def test_a_second_for_the_first_message_and_a_few_for_the_rest():
    callers = many(2)
    callers.note_message(1)
    assert callers.pop_overdue(FIRST_MESSAGE_SECONDS - 0.01) == []
    assert callers.pop_overdue(FIRST_MESSAGE_SECONDS) == [0]
    assert callers.pop_overdue(HANDSHAKE_SECONDS - 0.01) == []
    assert callers.pop_overdue(HANDSHAKE_SECONDS) == [1]
    assert len(callers) == 0


@pytest.mark.parametrize("unknown", ["never came", 0])
def test_messages_and_ends_of_evicted_callers_are_ignored(unknown):
    callers = many(1)
    callers.remove(0)
    callers.note_message(unknown)
    callers.remove(unknown)
    assert len(callers) == 0


def test_the_bounds_leave_room_for_others():
    assert FIRST_MESSAGE_SECONDS == 1.0
    assert MAX_CALLERS_PER_ADDRESS < MAX_CALLERS
