"""A rate limit for log lines: logs the first event at once, then one line per interval with the number of events since.

Thread: one owner.
"""

from __future__ import annotations

from math import inf


class RateLimit:
    def __init__(self, every: float) -> None:
        """`every`: seconds between two lines."""
        self._every = every
        self._last = -inf
        self._since = 0

    def due(self, now: float) -> int:
        """Counts an event. Returns the number of events since the last line, this one included, if a line is due; else
        0."""
        self._since += 1
        if now - self._last < self._every:
            return 0
        self._last, count, self._since = now, self._since, 0
        return count
