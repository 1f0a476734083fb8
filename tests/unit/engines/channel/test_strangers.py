"""Who has to go when too many call, or takes too long."""

from __future__ import annotations

import pytest

from multilane.engines.channel.strangers import (
    FIRST_LINE_SECONDS,
    HANDSHAKE_SECONDS,
    MOST,
    MOST_OF_ONE_ADDRESS,
    UnprovenCallers,
)


def many(count, host=None, most=4, most_of_one=4):
    strangers = UnprovenCallers(most, most_of_one)
    for number in range(count):
        assert strangers.come(number, host or f"host {number}", 0.0) is None
    return strangers


def test_the_oldest_silent_one_goes():
    strangers = many(4)
    assert strangers.come("new", "a", 0.0) == 0
    assert strangers.come("newer", "b", 0.0) == 1
    assert len(strangers) == 4


def test_who_has_spoken_stays_as_long_as_somebody_is_silent():
    strangers = many(4)
    for number in (0, 1, 3):
        strangers.speak(number)
    assert strangers.come("new", "a", 0.0) == 2
    assert strangers.come("newer", "b", 0.0) == "new"
    strangers.speak("newer")
    assert strangers.come("newest", "c", 0.0) == 0


def test_one_address_evicts_its_own():
    strangers = many(2, host="flood", most=8, most_of_one=2)
    for number in range(6):
        strangers.come(f"other {number}", f"host {number}", 0.0)
    assert strangers.come("new", "flood", 0.0) == 0
    assert strangers.come("newer", "flood", 0.0) == 1
    strangers.speak("new")
    strangers.speak("newer")
    assert strangers.come("newest", "flood", 0.0) == "new"
    assert len(strangers) == 8


def test_a_second_for_the_first_line_and_a_few_for_the_rest():
    strangers = many(2)
    strangers.speak(1)
    assert strangers.overdue(FIRST_LINE_SECONDS - 0.01) == []
    assert strangers.overdue(FIRST_LINE_SECONDS) == [0]
    assert strangers.overdue(HANDSHAKE_SECONDS - 0.01) == []
    assert strangers.overdue(HANDSHAKE_SECONDS) == [1]
    assert len(strangers) == 0


@pytest.mark.parametrize("unknown", ["never came", 0])
def test_who_is_gone_already_may_speak_and_leave(unknown):
    strangers = many(1)
    strangers.leave(0)
    strangers.speak(unknown)
    strangers.leave(unknown)
    assert len(strangers) == 0


def test_the_bounds_leave_room_for_others():
    assert FIRST_LINE_SECONDS == 1.0
    assert MOST_OF_ONE_ADDRESS < MOST
