"""A member of an application in a Spark worker: the composition root there.

Thread: `run` on the worker's own, `stop` and `counts` from any.

It is the process engine: the same groups, pumps and lanes, on an event loop in the worker. What is different is who
ends it, and that somebody elsewhere wants to know what is counted.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from multilane.lanes.steering import Steering
from multilane.runtime.engine import Engine
from multilane.runtime.targets import find_app

_SETTLED: Final = "lanes.records.settled"


class AppMember:
    """Made from `module:name`; the driver names this class by its import path."""

    def __init__(self, target: str) -> None:
        self._app = find_app(target)
        self._news = News()
        self._engine: Engine | None = None  # the one that runs, or ran last
        self._settled: Counter[str] = Counter()

    def run(self) -> None:
        with self._app.observed_by(self._news):
            self._app.run()

    def stop(self) -> None:
        self._app.stop()

    def steer(self, consumer: str, steering: Steering) -> None:
        self._app.helm.steer(consumer, steering)

    def counts(self) -> list[tuple[str, dict[str, str], float]]:
        return self._news.take() + self._newly_settled()

    def _newly_settled(self) -> list[tuple[str, dict[str, str], float]]:
        self._engine = self._app.engine or self._engine
        told = []
        for name, group in self._engine.groups.items() if self._engine is not None else ():
            more = group.settled - self._settled[name]
            if more > 0:  # the loop may be between two of the numbers that it is made of
                self._settled[name] += more
                told.append((_SETTLED, {"consumer": name}, float(more)))
        return told


class News:
    """An observer whose counts are taken away now and then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        with self._lock:
            self._counts[name, tuple(labels.items())] += value  # type: ignore[assignment]

    def take(self) -> list[tuple[str, dict[str, str], float]]:
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return [(name, dict(labels), value) for (name, labels), value in counts.items()]
