"""A topic's history, summarised as far as a plan needs, however long the topic is.

Thread: none (pure values).

Time is divided into slots of equal length. The rate of the busiest slot is the peak; bursts within a slot show in the
arrivals of the busiest one, record by record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Busiest:
    """The slot with most records; its offsets are [start, end), which may include records of other slots."""

    records: int
    begin: int  # ms since 1970
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """A partition that has records."""

    partition: int
    records: int
    size: int  # bytes of keys and values
    keys: int  # distinct
    unkeyed: int  # records without a key: they have no order
    first: int  # ms since 1970
    last: int
    busiest: Busiest


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """`peak` is the number of its records in its own busiest slot."""

    partition: int
    key: bytes
    records: int
    peak: int


@dataclass(frozen=True, slots=True)
class History:
    topic: str
    partitions: int
    slot: float  # seconds
    loads: tuple[PartitionLoad, ...]  # by partition; partitions without records are missing
    heaviest: tuple[HeavyKey, ...]  # the heaviest first
    busiest: Busiest  # of the topic as a whole

    @property
    def records(self) -> int:
        return sum(load.records for load in self.loads)

    @property
    def size(self) -> int:
        return sum(load.size for load in self.loads)

    @property
    def unkeyed(self) -> int:
        return sum(load.unkeyed for load in self.loads)

    @property
    def first(self) -> int:
        return min(load.first for load in self.loads)

    @property
    def last(self) -> int:
        return max(load.last for load in self.loads)

    @property
    def average(self) -> float:
        """Records per second. A history shorter than a slot counts as one slot."""
        return self.records / max(self.slot, (self.last - self.first) / 1_000)

    @property
    def peak(self) -> float:
        """Records per second."""
        return self.rate(self.busiest.records)

    @property
    def heaviest_load(self) -> PartitionLoad:
        """The partition with the busiest slot of all: it decides how many lanes are needed."""
        return max(self.loads, key=lambda load: load.busiest.records)

    def rate(self, records_of_a_slot: int) -> float:
        return records_of_a_slot / self.slot


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Records of one partition in log order: the arrival time in seconds after the first one, and a number for the key
    (None: no key)."""

    times: Sequence[float]
    keys: Sequence[int | None]

    def __len__(self) -> int:
        return len(self.times)

    def at_pace(self, factor: float) -> Arrivals:
        """The same arrivals, so many times as fast."""
        return Arrivals([time / factor for time in self.times], self.keys)

    def at_once(self, at_least: int, at_most: int) -> Arrivals:
        """The same keys as a backlog, repeated until there are enough records."""
        many = min(max(len(self.keys), at_least), at_most)
        rounds = -(-many // len(self.keys))
        return Arrivals([0.0] * many, (list(self.keys) * rounds)[:many])


def arrivals_of(rows: Sequence[tuple[int, int | None]]) -> Arrivals:
    """From (ms since 1970, key) in log order. A timestamp that goes back counts as equal to the one before."""
    times: list[float] = []
    latest = first = rows[0][0] if rows else 0
    for stamp, _ in rows:
        latest = max(latest, stamp)
        times.append((latest - first) / 1_000)
    return Arrivals(times, [key for _, key in rows])
