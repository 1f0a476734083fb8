"""Timers: one that rings once, at the earliest of the times it was set to, and one for all periods of a length.

Thread: loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakMethod

from multilane.clock import Clock

Looks = Callable[[], Any]


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


class Beat:
    """Has many look at something at every multiple of a period, with one timer of the loop for all of them. An idle app
    has thousands who look: a timer for each would cost more than what they do."""

    def __init__(self, period: float) -> None:
        self._period = period
        self._looks: set[WeakMethod[Looks]] = set()
        self._is_set = False

    @staticmethod
    def of(period: float) -> Beat:
        """That of the running loop."""
        beats = _BEATS.setdefault(asyncio.get_running_loop(), {})
        return beats.setdefault(period, Beat(period))

    def join(self, look: Looks) -> None:
        """`look` is a method. It is not called any more once nobody else has its object."""
        self._looks.add(WeakMethod(look))
        self._set()

    def leave(self, look: Looks) -> None:
        self._looks.discard(WeakMethod(look))

    def _set(self) -> None:
        if self._looks and not self._is_set:
            self._is_set = True
            loop = asyncio.get_running_loop()
            loop.call_later(until_next(self._period, loop.time()), self._ring)

    def _ring(self) -> None:
        self._is_set = False
        self._set()
        loop = asyncio.get_running_loop()
        for each in tuple(self._looks):
            look = each()
            if look is None:
                self._looks.discard(each)
            if look is None or each not in self._looks:
                continue  # another one has ended it
            try:
                look()
            except Exception as error:  # noqa: BLE001 - the others look all the same
                loop.call_exception_handler({"message": f"{look.__qualname__} failed", "exception": error})


def until_next(period: float, now: float) -> float:
    """Seconds until the next multiple of the period. Periodic checks of many pools fall together, so that an idle loop
    wakes up once for all of them."""
    return period - now % period


_BEATS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[float, Beat]]] = WeakKeyDictionary()
