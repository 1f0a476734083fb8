"""Counts handled records and reports them, tick by tick.

Thread: `Tally` any one thread at a time, `ThreadTally` any; a thread of their own reports.

Adding to a tally is part of the measurement, so it does as little as possible.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any, Protocol


class Counts(Protocol):
    @property
    def handled(self) -> int: ...


class Tally:
    """For handlers that run on one event loop."""

    __slots__ = ("began", "handled", "target")

    def __init__(self, target: int = 0) -> None:
        self.handled = 0
        self.target = target
        self.began: float | None = None

    def begin(self) -> None:
        """The time of a handler's first call; only used if a whole log is timed."""
        if self.began is None:
            self.began = time.perf_counter()

    def end(self, count: int) -> None:
        self.handled += count
        if self.handled == self.target and self.began is not None:
            tell(drained=time.perf_counter() - self.began)


class ThreadTally:
    """For handlers on many threads: each adds to a cell of its own."""

    def __init__(self) -> None:
        self._cells: list[list[int]] = []
        self._own = threading.local()

    def end(self, count: int) -> None:
        try:
            cell = self._own.cell
        except AttributeError:
            cell = self._own.cell = [0]
            self._cells.append(cell)
        cell[0] += count

    @property
    def handled(self) -> int:
        return sum(cell[0] for cell in self._cells)


def tell_regularly(counts: Counts, seconds: float) -> None:
    def run() -> None:
        while True:
            tell(at=time.perf_counter(), handled=counts.handled)
            time.sleep(seconds)

    threading.Thread(target=run, name="tally", daemon=True).start()


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)
