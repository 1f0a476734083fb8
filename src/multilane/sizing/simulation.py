"""Simulates the lanes of one partition event by event: records arrive, wait and are taken; every call takes the same
time.

Thread: none (pure).

The ordering is not imitated: records wait in the `Chains` that real lanes use. Failures, pauses of a full partition and
the cost of the process itself are left out.

A record waits for its key (the record before it is not settled), and then for a lane or for its window to fill. The two
are counted separately, because more lanes shorten only the second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf

from multilane.lanes.chains import Chains
from multilane.lanes.ordering import by_key
from multilane.sizing.history import Arrivals
from multilane.wire.records.record import Record


@dataclass(frozen=True, slots=True)
class SimulatedWork:
    """A call: how long it takes, how many records it gets at most, and how long it waits for them."""

    latency: float
    batch: int = 1
    fill: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    seconds: float  # from the first arrival to the end of the last call
    calls: int
    lane_waits: list[float]  # of each record, unordered
    key_waits: list[float]

    @property
    def throughput(self) -> float:
        """Records a second."""
        return len(self.lane_waits) / self.seconds


def simulate(arrivals: Arrivals, lanes: int, work: SimulatedWork) -> SimulationOutcome:
    """Runs until every record is handled."""
    return _Run(arrivals, lanes, work).outcome()


def ninety_ninth(waits: list[float]) -> float:
    """The 99th percentile."""
    return sorted(waits)[max(0, -(-len(waits) * 99 // 100) - 1)] if waits else 0.0


@dataclass(slots=True)
class _Run:
    arrivals: Arrivals
    lanes: int
    work: SimulatedWork
    chains: Chains = field(init=False)
    busy: list[tuple[float, int, list[Record]]] = field(default_factory=list)  # a heap by the end of the call
    released_at: dict[bytes | None, float] = field(default_factory=dict)  # when the last call with a key ended
    lane_waits: list[float] = field(default_factory=list)
    key_waits: list[float] = field(default_factory=list)
    calls: count[int] = field(default_factory=count)
    flush_at: float = inf
    is_flushing: bool = False

    def __post_init__(self) -> None:
        self.chains = Chains(by_key(), self.lanes)

    def outcome(self) -> SimulationOutcome:
        times = self.arrivals.times
        records = [_record(at, key) for at, key in enumerate(self.arrivals.keys)]
        arrived, now = 0, 0.0
        while arrived < len(records) or self.busy or self.chains.takeable:
            now = min(
                times[arrived] if arrived < len(records) else inf, self.busy[0][0] if self.busy else inf, self.flush_at
            )
            self._end_calls(now)
            before = arrived
            while arrived < len(records) and times[arrived] <= now:
                arrived += 1
            self.chains.put(records[before:arrived], now)
            self._flush(now)
            self._begin_calls(now)
        return SimulationOutcome(now - times[0] if records else 0.0, next(self.calls), self.lane_waits, self.key_waits)

    def _end_calls(self, now: float) -> None:
        while self.busy and self.busy[0][0] <= now:
            _, _, taken = heappop(self.busy)
            self.released_at.update((record.key, now) for record in taken)
            self.chains.release_all(taken, now)

    def _begin_calls(self, now: float) -> None:
        while len(self.busy) < self.lanes and self._window_is_ready():
            taken = self.chains.take(self.work.batch, now)
            heappush(self.busy, (now + self.work.latency, next(self.calls), taken))
            for record in taken:
                self._count_waits(record, now)
        self._set_flush(now)

    def _window_is_ready(self) -> bool:
        takeable = self.chains.takeable
        self.is_flushing = self.is_flushing and takeable > 0
        return takeable >= self.work.batch or self.is_flushing

    def _flush(self, now: float) -> None:
        if self.flush_at <= now:
            self.flush_at, self.is_flushing = inf, True

    def _set_flush(self, now: float) -> None:
        """As LanePool does: the time starts when a lane is free and a record waits."""
        if self.flush_at == inf and self.chains.takeable and len(self.busy) < self.lanes:
            self.flush_at = now + self.work.fill

    def _count_waits(self, record: Record, now: float) -> None:
        arrival = self.arrivals.times[record.offset]
        free = arrival if record.key is None else max(arrival, self.released_at.get(record.key, arrival))
        self.key_waits.append(free - arrival)
        self.lane_waits.append(now - free)


def _record(offset: int, key: int | None) -> Record:
    return Record("", 0, offset, 0, 0, None if key is None else b"%d" % key, None)
