"""Limits the rows of one poll for a group member that did not set `max.poll.records`.

Thread: application; owned by the subscriber. Pure: elapsed time is a parameter.

A member must poll again within `max.poll.interval.ms`, and a rebalance waits for its next poll. The time per row is
known only from earlier polls. So the first poll returns as few rows as the Java client does, and the limit grows while
the application polls again within seconds. A reader of columns reaches the maximum after five polls; one that takes a
millisecond per record stays at a few thousand. After a poll that was nearly too late the limit drops to what the
application can process in time.

The limit never falls below the first one: it must not shrink again and again for an application that polls on a timer.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = 500
MOST: Final = 100_000
_GROWTH: Final = 4
_AIM: Final = 5.0  # seconds: the longest time that the rows of one poll should take, if the interval allows it
_SHARE: Final = 0.1  # of the interval
_LATE: Final = 0.5  # of the interval


class PollPace:
    def __init__(self, max_poll_interval: float) -> None:
        self._aim = min(_AIM, _SHARE * max_poll_interval)
        self._late = _LATE * max_poll_interval
        self._rows = 0
        self.limit = FIRST

    def handed_out(self, rows: int) -> None:
        self._rows += rows

    def polled_again(self, seconds: float) -> None:
        """The application polls again, this many seconds after the last poll returned."""
        rows, self._rows = self._rows, 0
        if not rows:
            return
        affordable = int(rows * self._aim / seconds) if seconds > 0 else MOST
        if seconds > self._late:
            self.limit = max(FIRST, min(self.limit, affordable))
        elif rows >= self.limit:
            self.limit = min(MOST, max(self.limit, min(_GROWTH * self.limit, affordable)))
