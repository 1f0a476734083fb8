"""The rate limit of log lines: the first event is logged, then one line per interval, with the number of events."""

from __future__ import annotations

from multilane.rate_limit import RateLimit


def test_the_first_event_is_logged_and_later_ones_are_counted_until_the_interval_is_over():
    limit = RateLimit(10.0)
    assert [limit.due(now) for now in (100.0, 101.0, 109.9, 110.0)] == [1, 0, 0, 3]
    assert [limit.due(now) for now in (119.9, 130.0)] == [0, 2]
