"""Whether a run is ready, and whether it makes progress: what `/readyz` and `/livez` answer.

Thread: any; one lock.

Ready: every consumer has a member in its group. Live: processes that run lanes keep reporting, and a consumer whose
listener is running gets something done: a record is settled, fails or is retried. A consumer that is paused, has
nothing to do or waits for its brokers is live: a restart would not help. So is a run that starts, or restarts a worker.
Being live says nothing about lag.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from multilane.metrics.observer import Gauge

MEMBERS: Final = "group.members"
CALLS: Final = "lanes.calls"
REPORTS_WITHIN: Final = 30.0  # seconds: reports come every second
PROGRESS_WITHIN: Final = 60.0  # seconds, and at least twice the longest call that is allowed


@dataclass(slots=True)
class _Source:
    at: float
    members: dict[str, float] = field(default_factory=dict)  # by consumer
    calls: dict[str, float] = field(default_factory=dict)


class Liveness:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: dict[int | None, _Source] = {}
        self._advanced_at: dict[str, float] = {}  # by consumer: its last progress, or the last time that nothing ran

    def note_gauges(self, source: int | None, gauges: Iterable[Gauge], now: float) -> None:
        with self._lock:
            known = self._sources[source] = _Source(now)
            for gauge in gauges:
                by_consumer = {MEMBERS: known.members, CALLS: known.calls}.get(gauge.name)
                if by_consumer is not None:
                    by_consumer[gauge.labels.get("consumer", "")] = gauge.value
            for consumer in self._advanced_at.keys() | known.calls.keys():
                if not self._total(consumer, CALLS) or consumer not in self._advanced_at:
                    self._advanced_at[consumer] = now

    def note_progress(self, consumer: str, now: float) -> None:
        with self._lock:
            self._advanced_at[consumer] = now

    def forget(self, source: int | None) -> None:
        """The source has ended."""
        with self._lock:
            self._sources.pop(source, None)

    def unready(self, consumers: Collection[str], now: float) -> list[str]:
        """Why the run is not ready; empty if it is."""
        with self._lock:
            missing = [name for name in consumers if not self._total(name, MEMBERS)]
            return [f"consumer {name} is not in its group" for name in missing] + self._silent(now)

    def stalled(self, longest_calls: Mapping[str, float], paused: Collection[str], now: float) -> list[str]:
        """Why the run is not live; empty if it is. `longest_calls`: seconds by consumer."""
        with self._lock:
            found = self._silent(now)
            for name, longest in longest_calls.items():
                limit = max(PROGRESS_WITHIN, 2 * longest)
                idle = now - self._advanced_at.get(name, now)
                calls = self._total(name, CALLS)
                if calls and idle > limit and name not in paused:
                    found.append(f"consumer {name}: no progress for {idle:.0f} s, while {calls:.0f} calls run")
            return found

    def _silent(self, now: float) -> list[str]:
        late = [now - source.at for source in self._sources.values() if now - source.at > REPORTS_WITHIN]
        many = f"{len(late)} of {len(self._sources)} processes"
        return [f"{many} that run lanes have not reported for {max(late):.0f} s"] if late else []

    def _total(self, consumer: str, name: str) -> float:
        sources = self._sources.values()
        return sum((source.members if name == MEMBERS else source.calls).get(consumer, 0.0) for source in sources)
