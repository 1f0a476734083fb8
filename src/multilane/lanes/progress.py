"""Progress of a run: counts of settled, failed, retried and dead records, logged every ten seconds and at the end.

Thread: one owner; `facts` from any.

Every engine that runs an app has one. In a process it observes its own counters; on Spark the driver adds the counts of
its workers. A DataFrame stage has one in each worker process as well, because its driver learns only of tasks that have
completed. Rates are over the time since the last line. No line is logged for a consumer without activity.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from multilane.clock import Clock, SystemClock
from multilane.lanes.failure_log import FailureLog, by_consumer, counted
from multilane.lanes.liveness import Liveness
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Count, Duration, Gauge, Observer
from multilane.outcome.failure_kinds import Sighting, looks_like

log = logger(__name__)

LOG_EVERY: Final = 10.0  # seconds

RECEIVED: Final = "lanes.records.received"
SETTLED: Final = "lanes.records.settled"
RETRIED: Final = "lanes.records.retried"
REPEATED: Final = "lanes.records.repeated"  # retried in place, without a copy: they are not settled by it
DEAD: Final = "lanes.records.dead"
FOLLOWED: Final = "lanes.records.followed"  # copied to the retry topic behind their key, unhandled
_OUTAGE: Final = "lanes.outage"  # with the state `paused` or `resumed`
_FAILED: Final = "failed"
_NAMES: Final = frozenset({SETTLED, RETRIED, REPEATED, DEAD, FOLLOWED})
_MOST_KINDS: Final = 5

Tally = Counter[str]


class Progress:
    def __init__(self, observer: Observer = NO_OBSERVER, clock: Clock | None = None) -> None:
        """The `observer` gets only counts that other processes report: it has counted its own already."""
        self._clock = clock or SystemClock()
        self.failures = FailureLog(clock, is_taken=True)
        self.liveness = Liveness()
        self._observer = observer
        self._lock = threading.Lock()
        self._totals: dict[str, Tally] = {}  # by consumer
        self._logged: dict[str, Tally] = {}
        self._paused: dict[int | None, Counter[str]] = {}  # by worker and consumer: members that an outage pauses
        self._began_at = self._logged_at = 0.0

    def begin(self, now: float) -> None:
        """A run begins, or the next task of this process: the counts start over."""
        self.failures.begin()
        with self._lock:
            self._totals = {}
        self._logged = {}
        self._began_at = self._logged_at = now

    @property
    def due(self) -> float:
        """When the next line is due."""
        return self._logged_at + LOG_EVERY

    # --- counting ----------------------------------------------------------------------------------------------------

    def add(self, message: Mapping[str, Any], worker: int | None = None) -> None:
        """The counts, failures and gauges that a worker reports."""
        counts: list[Count | Duration] = message.get("counts") or []
        self.note(counts, worker)
        self.failures.add(message.get("failures") or [])
        for name, labels, value, *times in counts:
            if times:
                self._observer.duration(name, value, int(times[0]), **labels)
            else:
                self._observer.count(name, value, **labels)
        if (gauges := message.get("gauges")) is not None:
            self.note_gauges([Gauge(*gauge) for gauge in gauges], worker)

    def note_gauges(self, gauges: Sequence[Gauge], worker: int | None = None) -> None:
        self.liveness.note_gauges(worker, gauges, self._clock.monotonic())
        self._observer.gauges(_source(worker), gauges)

    def forget(self, worker: int | None = None) -> None:
        """The worker is gone: members that an outage paused there are no longer paused, and it cannot report that."""
        with self._lock:
            self._paused.pop(worker, None)
        self.liveness.forget(worker)
        self._observer.gauges(_source(worker), ())

    def note(self, counts: Iterable[Count | Duration], worker: int | None = None) -> None:
        now = self._clock.monotonic()
        with self._lock:
            paused = self._paused.setdefault(worker, Counter())
            for name, labels, value, *_ in counts:
                consumer = labels.get("consumer", "")
                if name == _OUTAGE:
                    paused[consumer] += 1 if labels.get("state") == "paused" else -1
                elif name in _NAMES:
                    self._totals.setdefault(consumer, Counter())[name] += round(value)
                    self.liveness.note_progress(consumer, now)

    # --- reporting ---------------------------------------------------------------------------------------------------

    def log_progress(self, now: float, prefix: str = "") -> None:
        """Log a line for each consumer that was active since the last line."""
        seen = by_consumer(self.failures.take())
        seconds = max(0.001, now - self._logged_at)
        self._logged_at = now
        with self._lock:
            self._count_failed(seen)
            totals = {name: Counter(tally) for name, tally in self._totals.items()}
            paused = self._members_paused()
        for consumer, tally in totals.items():
            added = tally - self._logged.get(consumer, Counter())
            kinds = seen.get(consumer, [])
            if added:
                rate = f" ({added[SETTLED] / seconds:,.0f}/s)"
                level = logging.WARNING if added[_FAILED] else logging.INFO
                log.log(level, "%sconsumer %s: %s", prefix, consumer, _line(added, rate, kinds, paused[consumer]))
        self._logged = totals

    def close(self, now: float, what: str = "run total") -> None:
        """Log the totals since `begin`. Nothing is logged for a consumer without any."""
        seen = by_consumer(self.failures.take())
        with self._lock:
            self._count_failed(seen)
            totals = {name: Counter(tally) for name, tally in self._totals.items()}
        for consumer, tally in totals.items():
            level = logging.WARNING if tally[_FAILED] else logging.INFO
            kinds = [(kind, many) for kind, many in self.failures.totals.items() if kind.consumer == consumer]
            kinds.sort(key=lambda pair: -pair[1])
            why = "; ".join(f"{many:,} x {kind}" for kind, many in kinds[:_MOST_KINDS])
            summary = f"{_numbers(tally)}{f'. Errors: {why}' if why else ''}"
            log.log(level, "consumer %s, %s (%.0f s): %s", consumer, what, now - self._began_at, summary)

    def facts(self) -> dict[str, Any]:
        """For `multilane top --control`: totals of this run."""
        failed: Counter[str] = Counter()
        for kind, many in self.failures.totals.items():
            failed[kind.consumer] += many
        kinds = by_consumer(self.failures.listed())
        with self._lock:
            totals = {name: Counter(tally) for name, tally in self._totals.items()}
            paused = self._members_paused()
        names = [*totals, *(name for name in failed if name not in totals)]
        return {
            name: _facts(totals.get(name, Counter()), failed[name], kinds.get(name, [])) | {"paused": name in paused}
            for name in names
        }

    def _members_paused(self) -> Counter[str]:
        return sum((+members for members in self._paused.values()), Counter())

    def _count_failed(self, seen: dict[str, list[Sighting]]) -> None:
        for consumer, kinds in seen.items():
            self._totals.setdefault(consumer, Counter())[_FAILED] += sum(one.count for one in kinds)


def _source(worker: int | None) -> str:
    return "" if worker is None else str(worker)


def _numbers(tally: Tally, rate: str = "") -> str:
    parts = [f"settled {tally[SETTLED]:,}{rate}", f"failed {tally[_FAILED]:,}"]
    parts += [f"retried {tally[RETRIED]:,}", f"dead {tally[DEAD]:,}"]
    if tally[FOLLOWED]:
        parts.append(f"{tally[FOLLOWED]:,} moved to the retry topic behind their key")
    return ", ".join(parts)


def _line(added: Tally, rate: str, kinds: list[Sighting], paused: int) -> str:
    parts = [_numbers(added, rate)]
    if paused:
        parts.append(f"members paused by an outage: {paused}")
    if kinds:
        verdict = looks_like(kinds, _succeeded(added))
        parts += [verdict] if verdict else []
        parts.append(f"errors: {counted(kinds)}")
    return ". ".join(part[0].upper() + part[1:] if number else part for number, part in enumerate(parts))


def _succeeded(tally: Tally) -> int:
    copied = tally[RETRIED] - tally[REPEATED] + tally[DEAD] + tally[FOLLOWED]
    return max(0, tally[SETTLED] - copied)


def _facts(tally: Tally, failed: int, kinds: list[Sighting]) -> dict[str, Any]:
    return {
        "settled": tally[SETTLED],
        "failed": failed,
        "retried": tally[RETRIED],
        "dead": tally[DEAD],
        "errors": [
            {"error": one.kind.error, "line": one.kind.line, "message": one.message, "count": one.count}
            for one in kinds[:_MOST_KINDS]
        ],
    }
