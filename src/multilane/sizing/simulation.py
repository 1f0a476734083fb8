"""Lanes of one partition, simulated event by event: records come, wait, are taken, and every call takes as long.

Thread: none (pure).

What decides the order is not imitated: the records wait in the very `Chains` that real lanes take them from. Left out
are failures, pauses of a partition that is full, and what the process itself costs.

A record waits for two things, and they are told apart because only one of them is a matter of lanes: for its key (the
one before it is not done with) and, once it could be handled, for a lane or for its window to fill.
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
    """What a call is: how long it takes, how many records it gets at most, and how long it waits for them."""

    latency: float
    batch: int = 1
    fill: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    seconds: float  # from the first arrival to the end of the last call
    calls: int
    lane_waits: list[float]  # of each record, in no order
    key_waits: list[float]

    @property
    def throughput(self) -> float:
        """Records a second."""
        return len(self.lane_waits) / self.seconds


def simulate(arrivals: Arrivals, lanes: int, work: SimulatedWork) -> SimulationOutcome:
    """Until everything that came is done."""
    return _Run(arrivals, lanes, work).outcome()


def ninety_ninth(waits: list[float]) -> float:
    """What 99 of 100 do not exceed."""
    return sorted(waits)[max(0, -(-len(waits) * 99 // 100) - 1)] if waits else 0.0


@dataclass(slots=True)
class _Run:
    arrivals: Arrivals
    lanes: int
    work: SimulatedWork
    chains: Chains = field(init=False)
    busy: list[tuple[float, int, list[Record]]] = field(default_factory=list)  # a heap by the end of the call
    freed: dict[bytes | None, float] = field(default_factory=dict)  # when the last call with a key ended
    lane_waits: list[float] = field(default_factory=list)
    key_waits: list[float] = field(default_factory=list)
    calls: count[int] = field(default_factory=count)
    flush_at: float = inf
    flushes: bool = False

    def __post_init__(self) -> None:
        self.chains = Chains(by_key(), self.lanes)

    def outcome(self) -> SimulationOutcome:
        times = self.arrivals.times
        records = [_record(at, key) for at, key in enumerate(self.arrivals.keys)]
        come, now = 0, 0.0
        while come < len(records) or self.busy or self.chains.takeable:
            now = min(times[come] if come < len(records) else inf, self.busy[0][0] if self.busy else inf, self.flush_at)
            self._end_calls(now)
            before = come
            while come < len(records) and times[come] <= now:
                come += 1
            self.chains.put(records[before:come], now)
            self._flush(now)
            self._begin_calls(now)
        return SimulationOutcome(now - times[0] if records else 0.0, next(self.calls), self.lane_waits, self.key_waits)

    def _end_calls(self, now: float) -> None:
        while self.busy and self.busy[0][0] <= now:
            _, _, taken = heappop(self.busy)
            self.freed.update((record.key, now) for record in taken)
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
        self.flushes = self.flushes and takeable > 0
        return takeable >= self.work.batch or self.flushes

    def _flush(self, now: float) -> None:
        if self.flush_at <= now:
            self.flush_at, self.flushes = inf, True

    def _set_flush(self, now: float) -> None:
        """As a crew does it: the time begins when a lane is free and something waits."""
        if self.flush_at == inf and self.chains.takeable and len(self.busy) < self.lanes:
            self.flush_at = now + self.work.fill

    def _count_waits(self, record: Record, now: float) -> None:
        came = self.arrivals.times[record.offset]
        free = came if record.key is None else max(came, self.freed.get(record.key, came))
        self.key_waits.append(free - came)
        self.lane_waits.append(now - free)


def _record(place: int, key: int | None) -> Record:
    return Record("", 0, place, 0, 0, None if key is None else b"%d" % key, None)
