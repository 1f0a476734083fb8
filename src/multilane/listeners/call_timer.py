"""How long the calls of a listener take, for observers that ask for durations.

Thread: any; calls end on the loop or on threads.

Reports once a second, never per call. On the loop, many calls that hardly take longer than their measurement are
sampled: after such a call the next few are only counted, with the duration of the one that is measured after them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

from multilane.clock import Clock
from multilane.metrics.histogram import Histogram
from multilane.metrics.observer import Observer

DURATION: Final = "lanes.call.duration"
BRIEF: Final = 0.0001  # seconds
FULLY_MEASURED: Final = 100  # calls in each report, before any is skipped
SKIPPED: Final = 15  # calls after a brief one
_REPORT_AFTER: Final = 1.0  # seconds


class CallTimer:
    """Make it inside the running loop."""

    def __init__(self, observer: Observer, consumer: str, clock: Clock) -> None:
        self._observer = observer
        self._consumer = consumer
        self._now = clock.monotonic
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._durations = Histogram()
        self._is_due = False  # a report is scheduled
        # On the loop only:
        self._measured_calls = 0  # since the last report
        self._to_skip = 0
        self._skipped = 0
        self._last = 0.0  # duration of the call that was measured last

    def timed_async(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The function, to be called on the loop."""

        def call(*args: Any, **kwargs: Any) -> Awaitable[Any]:
            if self._to_skip:
                self._to_skip -= 1
                self._skipped += 1
                return function(*args, **kwargs)
            return self._measured(function(*args, **kwargs))

        return call

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, to be called on any thread."""

        def call(*args: Any, **kwargs: Any) -> Any:
            began = self._now()
            try:
                return function(*args, **kwargs)
            finally:
                self._add(self._now() - began, 1)

        return call

    async def _measured(self, call: Awaitable[Any]) -> Any:
        times, self._skipped = self._skipped + 1, 0
        began = self._now()
        try:
            return await call
        finally:
            self._last = seconds = self._now() - began
            self._measured_calls += 1
            self._to_skip = SKIPPED if seconds < BRIEF and self._measured_calls > FULLY_MEASURED else 0
            self._add(seconds, times)

    def _add(self, seconds: float, times: int) -> None:
        with self._lock:
            self._durations.add(seconds, times)
            was_due, self._is_due = self._is_due, True
        if not was_due and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.call_later, _REPORT_AFTER, self.report)

    def report(self) -> None:
        """On the loop."""
        skipped, self._skipped, self._to_skip, self._measured_calls = self._skipped, 0, 0, 0
        with self._lock:
            self._durations.add(self._last, skipped)
            durations, self._durations, self._is_due = self._durations, Histogram(), False
        for seconds, times in durations.groups():
            self._observer.duration(DURATION, seconds, times, consumer=self._consumer)
