"""Time as a dependency that is passed in, so that tests control it.

Thread: any.

The only module that reads the system's clocks. `monotonic()` drives every timer and deadline; it includes the time that
the machine sleeps, where the system supports that. `wall()` (seconds since the epoch) is for display and for Kafka
timestamps.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final, Protocol


class Clock(Protocol):
    """The source of the current time."""

    def monotonic(self) -> float: ...
    def wall(self) -> float: ...


_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """The machine's clocks."""

    # Without a Python function around it, because lanes read it for every record.
    monotonic = staticmethod(time.monotonic if _BOOT is None else partial(time.clock_gettime, _BOOT))

    def wall(self) -> float:
        return time.time()


class ManualClock:
    """A clock that moves only by `advance`."""

    def __init__(self, now: float = 0.0, wall: float = 1_700_000_000.0) -> None:
        self._now = now
        self._wall = wall

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._wall

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self._wall += seconds
