"""How many rows a poll hands out, by how long the application took over those before."""

from __future__ import annotations

import pytest

from multilane.client.pace import FIRST, MOST, PollPace


def run(pace: PollPace, seconds_per_row: float, polls: int, backlog: int = 10**9) -> list[int]:
    """Rows of each poll, of an application with a backlog."""
    handed_out = []
    for _ in range(polls):
        rows = min(pace.limit, backlog)
        handed_out.append(rows)
        pace.handed_out(rows)
        pace.polled_again(rows * seconds_per_row)
    return handed_out


def test_who_is_fast_gets_as_much_as_there_is():
    assert run(PollPace(300.0), 1e-7, 6) == [500, 2_000, 8_000, 32_000, MOST, MOST]


def test_who_takes_a_millisecond_over_each_record_is_back_within_seconds():
    assert run(PollPace(300.0), 0.001, 4) == [500, 2_000, 5_000, 5_000]


def test_who_is_slow_gets_what_java_hands_out():
    assert run(PollPace(300.0), 0.1, 3) == [FIRST] * 3


def test_a_short_interval_asks_for_shorter_polls():
    assert max(run(PollPace(10.0), 0.001, 6)) == 1_000


def test_who_becomes_slow_gets_less_before_it_is_too_late_a_second_time():
    pace = PollPace(100.0)
    run(pace, 1e-7, 6)
    assert run(pace, 0.0007, 3) == [MOST, 7_142, 7_142]


@pytest.mark.parametrize("every", [60.0, 1_000.0])
def test_who_polls_by_a_timer_is_not_given_less_and_less(every):
    pace = PollPace(300.0)
    run(pace, 1e-7, 6)
    for _ in range(10):
        pace.handed_out(100)
        pace.polled_again(every)
    assert pace.limit >= FIRST


def test_polls_that_handed_out_nothing_say_nothing():
    pace = PollPace(300.0)
    pace.polled_again(200.0)
    pace.polled_again(0.0)
    assert pace.limit == FIRST
