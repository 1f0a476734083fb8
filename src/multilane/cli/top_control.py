"""What a running application tells of its failures over its control socket, for `multilane top --control`.

Thread: application.

The application knows what brokers do not: failures that leave no copy, and the raising line. It tells totals; rates are
their growth over some seconds.
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

Told = Mapping[str, Any]  # by consumer, as `Progress.facts` makes it


class AppWatch:
    def __init__(self, path: Path, clock: Clock | None = None, window: float = WINDOW) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._window = window
        self._told: deque[tuple[float, Told]] = deque()  # the oldest first

    def look(self) -> dict[str, AppFailures]:
        """By consumer. Raises ConfigError when nobody answers."""
        told: Told = ask(self._path, {"do": "progress"})["progress"]
        now = self._clock.monotonic()
        while len(self._told) > 1 and self._told[1][0] <= now - self._window:
            self._told.popleft()
        self._told.append((now, told))
        at, before = self._told[0]
        return {name: _compared(before.get(name, {}), facts, now - at) for name, facts in told.items()}


def _compared(before: Told, now: Told, seconds: float) -> AppFailures:
    known = dict(_counted(before))
    errors = [(text, count - known.get(text, 0)) for text, count in _counted(now)]
    grown = sorted(((text, count) for text, count in errors if count > 0), key=lambda pair: -pair[1])
    rate = (now["failed"] - before.get("failed", 0)) / seconds if seconds > 0 else None
    is_paused = bool(now.get("paused"))
    shown = grown or (list(_counted(now)) if is_paused else [])
    return AppFailures(now["settled"], now["failed"], now["retried"], now["dead"], rate, tuple(shown), is_paused)


def _counted(facts: Told) -> Iterator[tuple[str, int]]:
    for one in facts.get("errors", ()):
        place = f" at {one['line']}" if one["line"] else ""
        yield f"{one['error']}{place}: {one['message']}", one["count"]
