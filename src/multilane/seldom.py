"""A rate limit for log lines: the first at once, then one per interval with the number of events since.

Thread: one owner.
"""

from __future__ import annotations

from math import inf


class Seldom:
    def __init__(self, every: float) -> None:
        """`every`: seconds between two lines."""
        self._every = every
        self._last = -inf
        self._since = 0

    def tell(self, now: float) -> int:
        """One more event. When a line is due: how many there were since the last line, this one included; else 0."""
        self._since += 1
        if now - self._last < self._every:
            return 0
        self._last, many, self._since = now, self._since, 0
        return many
