"""What happened, told to whoever wants to know: counters and events without a metrics library.

Thread: any; the receiver is called on the thread where it happened and must not block.

Components report through the `Observer` they were given. `NO_OBSERVER` costs one call. Names are Kafka's own words in
dotted form; labels hold no keys, values or credentials.
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


class Both:
    """Two observers as one."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self._first, self._second = first, second

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        self._first.count(name, value, **labels)
        self._second.count(name, value, **labels)


class Counts:
    """An observer that adds up, by name and by (name, labels): for tests, `stats()` and later exporters."""

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
        """The counts of `name`, told apart by one of their labels."""
        found: Counter[str] = Counter()
        with self._lock:
            for (counted, labels), value in self._labelled.items():
                if counted == name:
                    found[dict(labels).get(label, "")] += value
        return dict(found)

    def snapshot(self) -> dict[str, float]:
        with self._lock:
            return dict(self._totals)


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
