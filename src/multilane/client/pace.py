"""How many rows one poll hands out to a member of a group that did not choose `max.poll.records`.

Thread: application; owned by the subscriber. Pure: elapsed time is a parameter.

A member must poll again within `max.poll.interval.ms`, and a rebalance waits for its next poll. How long it takes over
a row only its own past can tell: the first poll gets as few rows as Java hands out, and polls grow for as long as the
application is back within seconds. Whoever reads columns has the most after five polls, and whoever takes a
millisecond over each record stays at a few thousand. An application that was nearly too late is given what it can
manage.

The limit never falls below the first one: an application that polls by a timer must not be given less and less.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = 500
MOST: Final = 100_000
_GROWTH: Final = 4
_AIM: Final = 5.0  # seconds that the rows of one poll should take at most, where the interval allows it
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

    def returned(self, seconds: float) -> None:
        """The application polls again, so long after the last poll handed something out."""
        rows, self._rows = self._rows, 0
        if not rows:
            return
        affordable = int(rows * self._aim / seconds) if seconds > 0 else MOST
        if seconds > self._late:
            self.limit = max(FIRST, min(self.limit, affordable))
        elif rows >= self.limit:
            self.limit = min(MOST, max(self.limit, min(_GROWTH * self.limit, affordable)))
