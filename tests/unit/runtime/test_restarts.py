"""When a killed process starts again."""

from __future__ import annotations

from multilane.runtime.restarts import Restarts


def test_it_waits_longer_after_each_death_and_not_beyond_a_minute():
    restarts, now, waits = Restarts(), 100.0, []
    for _ in range(8):
        restarts.start(now)
        now += 5
        waits.append(restarts.wait_after_death(now))
        now += waits[-1]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_after_a_minute_of_life_earlier_deaths_do_not_count():
    restarts = Restarts()
    restarts.start(0.0)
    assert [restarts.wait_after_death(1.0) for _ in range(3)] == [1, 2, 4]
    restarts.start(10.0)
    assert restarts.deaths_in_a_row(69.0) == 3
    assert restarts.deaths_in_a_row(70.0) == 0
    assert restarts.wait_after_death(70.0) == 1
