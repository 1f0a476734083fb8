"""Counters, durations and gauges, reported to an `Observer`, without a metrics library.

Thread: any. The observer is called on the reporting thread and must not block.

Components report through the `Observer` they were given. `NO_OBSERVER` costs one call. Names are Kafka's own words in
dotted form. Labels never hold keys, values or credentials.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from multilane.clock import Clock
from multilane.logs import logger
from multilane.metrics.histogram import Histogram
from multilane.rate_limit import RateLimit

log = logger(__name__)

_LOG_EVERY: Final = 60.0  # seconds between two lines about a failing observer

Count = tuple[str, dict[str, str], float]  # name, labels, how many more
Duration = tuple[str, dict[str, str], float, int]  # name, labels, seconds each, times


class Gauge(NamedTuple):
    """A value as it is now."""

    name: str
    labels: dict[str, str]
    value: float


class Observer(Protocol):
    """Subclass it, and override the methods that you need."""

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        """A counter grew by `value`."""
        return None

    def duration(self, name: str, seconds: float, times: int = 1, **labels: str) -> None:
        """Something took this long, `times` times. Frequent events are reported together: in groups of similar length,
        with the mean of the group."""
        return None

    def gauges(self, source: str, values: Iterable[Gauge]) -> None:
        """All gauges of a source, about once a second. They replace those that it reported before; none are left when
        the source has ended. Sources are this process ("") and workers. Add up the values of all sources."""
        return None


class _NoObserver(Observer):
    pass


NO_OBSERVER: Observer = _NoObserver()


class CountsOnly(Observer):
    """Forwards counts, and nothing else: nobody has to measure durations for it."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        self._observer.count(name, value, **labels)


class GuardedObserver(Observer):
    """Forwards to an observer of the application. If that raises, the report is lost and the error is logged; records
    are handled as before."""

    def __init__(self, observer: Observer, clock: Clock) -> None:
        self.observer = observer
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = RateLimit(_LOG_EVERY)

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        try:
            self.observer.count(name, value, **labels)
        except Exception:  # noqa: BLE001 - whatever a foreign observer raises; it is logged
            self._log_failure()

    def duration(self, name: str, seconds: float, times: int = 1, **labels: str) -> None:
        try:
            self.observer.duration(name, seconds, times, **labels)
        except Exception:  # noqa: BLE001 - whatever a foreign observer raises; it is logged
            self._log_failure()

    def gauges(self, source: str, values: Iterable[Gauge]) -> None:
        try:
            self.observer.gauges(source, values)
        except Exception:  # noqa: BLE001 - whatever a foreign observer raises; it is logged
            self._log_failure()

    def _log_failure(self) -> None:
        with self._lock:
            failures = self._failures.due(self._clock.monotonic())
        if failures:
            log.exception("the application's observer failed; %d reports are lost since the last such line", failures)


def guarded(observer: Observer, clock: Clock) -> Observer:
    """An observer of an application, whose failures stop nothing. It may have only the method `count`."""
    if observer is NO_OBSERVER or type(observer) in (GuardedObserver, Counts, ReportBuffer):
        return observer
    has_all = all(callable(getattr(observer, method, None)) for method in ("duration", "gauges"))
    return GuardedObserver(observer if has_all else CountsOnly(observer), clock)


def takes_durations(observer: Observer) -> bool:
    """Whether somebody reads durations: to measure frequent events costs time."""
    if isinstance(observer, ObserverPair):
        return any(map(takes_durations, observer.both))
    if isinstance(observer, GuardedObserver):
        return takes_durations(observer.observer)
    return type(observer).duration is not Observer.duration


class ObserverPair(Observer):
    """Forwards every report to two observers."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self._first, self._second = self.both = first, second

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        self._first.count(name, value, **labels)
        self._second.count(name, value, **labels)

    def duration(self, name: str, seconds: float, times: int = 1, **labels: str) -> None:
        self._first.duration(name, seconds, times, **labels)
        self._second.duration(name, seconds, times, **labels)

    def gauges(self, source: str, values: Iterable[Gauge]) -> None:
        known = tuple(values)
        self._first.gauges(source, known)
        self._second.gauges(source, known)


def pair(first: Observer, second: Observer) -> Observer:
    """Both as one. With only one of them it is that one itself, so that clients that compare observers see the same."""
    if first is NO_OBSERVER or second is NO_OBSERVER:
        return second if first is NO_OBSERVER else first
    return ObserverPair(first, second)


class Counts(Observer):
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


class ReportBuffer(Observer):
    """Buffers counts and durations until `take` removes them, for a report to another process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self._durations: dict[tuple[str, tuple[tuple[str, str], ...]], Histogram] = {}

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        with self._lock:
            self._counts[name, tuple(labels.items())] += value  # type: ignore[assignment]

    def duration(self, name: str, seconds: float, times: int = 1, **labels: str) -> None:
        with self._lock:
            self._durations.setdefault((name, tuple(labels.items())), Histogram()).add(seconds, times)

    def take(self) -> list[Count | Duration]:
        with self._lock:
            counts, self._counts = self._counts, Counter()
            durations, self._durations = self._durations, {}
        reports: list[Count | Duration] = [(name, dict(labels), value) for (name, labels), value in counts.items()]
        for (name, labels), histogram in durations.items():
            reports += [(name, dict(labels), seconds, times) for seconds, times in histogram.groups()]
        return reports
