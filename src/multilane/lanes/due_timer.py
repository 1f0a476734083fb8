"""Timers: one that rings once, at the earliest of the times it was set to, and periods whose ends coincide.

Thread: loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from multilane.clock import Clock


class DueTimer:
    def __init__(self, ring: Callable[[], object], clock: Clock) -> None:
        self._ring = ring
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._at = inf
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def set(self, due: float) -> None:
        """On the monotonic clock."""
        if due < self._at and not self._is_over:
            self.cancel()
            self._at = due
            self._timer = self._loop.call_later(max(0.0, due - self._clock.monotonic()), self._rings)

    def end(self) -> None:
        """Never ring again."""
        self.cancel()
        self._is_over = True

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._at = None, inf

    def _rings(self) -> None:
        self.cancel()
        self._ring()


def until_next(period: float, now: float) -> float:
    """Seconds until the next multiple of the period. Periodic checks of many pools fall together, so that an idle loop
    wakes up once for all of them."""
    return period - now % period
