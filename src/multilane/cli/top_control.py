"""Reads the failures of a running app from its control socket, for `multilane top --control`.

Thread: application.

The app knows what brokers do not: failures that leave no copy, and the raising line. It reports totals; rates
are their growth over a few seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from multilane.app.control import ask
from multilane.clock import Clock, SystemClock
from multilane.group.failures import AppFailures
from multilane.group.snapshot_history import WINDOW

Facts = Mapping[str, Any]  # by consumer, as `Progress.facts` returns them


class AppWatch:
    def __init__(self, path: Path, clock: Clock | None = None, window: float = WINDOW) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._window = window
        self._samples: deque[tuple[float, Facts]] = deque()  # the oldest first

    def poll(self) -> dict[str, AppFailures]:
        """Failures by consumer. Raises ConfigError when the app does not answer."""
        progress: Facts = ask(self._path, {"do": "progress"})["progress"]
        now = self._clock.monotonic()
        while len(self._samples) > 1 and self._samples[1][0] <= now - self._window:
            self._samples.popleft()
        self._samples.append((now, progress))
        at, before = self._samples[0]
        return {name: _compared(before.get(name, {}), facts, now - at) for name, facts in progress.items()}


def _compared(before: Facts, now: Facts, seconds: float) -> AppFailures:
    known = dict(_counted(before))
    errors = [(text, count - known.get(text, 0)) for text, count in _counted(now)]
    grown = sorted(((text, count) for text, count in errors if count > 0), key=lambda pair: -pair[1])
    rate = (now["failed"] - before.get("failed", 0)) / seconds if seconds > 0 else None
    is_paused = bool(now.get("paused"))
    shown = grown or (list(_counted(now)) if is_paused else [])
    return AppFailures(now["settled"], now["failed"], now["retried"], now["dead"], rate, tuple(shown), is_paused)


def _counted(facts: Facts) -> Iterator[tuple[str, int]]:
    for one in facts.get("errors", ()):
        location = f" at {one['line']}" if one["line"] else ""
        yield f"{one['error']}{location}: {one['message']}", one["count"]
