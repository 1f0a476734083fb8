"""Counters and events, reported to an `Observer`, without a metrics library.

Thread: any. The observer is called on the reporting thread and must not block.

Components report through the `Observer` they were given. `NO_OBSERVER` costs one call. Names are Kafka's own words in
dotted form. Labels never hold keys, values or credentials.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Protocol


class Observer(Protocol):
    def count(self, name: str, value: float = 1, **labels: str) -> None: ...


class _NoObserver:
    def count(self, name: str, value: float = 1, **labels: str) -> None:
        return None


NO_OBSERVER: Observer = _NoObserver()


class ObserverPair:
    """Forwards every count to two observers."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self._first, self._second = first, second

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        self._first.count(name, value, **labels)
        self._second.count(name, value, **labels)


class Counts:
    """Keeps totals by name and by (name, labels), for tests, `stats()` and exporters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: Counter[str] = Counter()
        self._labelled: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        with self._lock:
            self._totals[name] += value  # type: ignore[assignment]
            if labels:
                self._labelled[name, tuple(sorted(labels.items()))] += value  # type: ignore[assignment]

    def total(self, name: str) -> float:
        with self._lock:
            return self._totals[name]

    def by(self, label: str, name: str) -> dict[str, float]:
        """The counts of `name`, grouped by the values of one label."""
        found: Counter[str] = Counter()
        with self._lock:
            for (counted, labels), value in self._labelled.items():
                if counted == name:
                    found[dict(labels).get(label, "")] += value
        return dict(found)

    def snapshot(self) -> dict[str, float]:
        with self._lock:
            return dict(self._totals)


class CountBuffer:
    """Buffers counts until `take` removes them."""

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
