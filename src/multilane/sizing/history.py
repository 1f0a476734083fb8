"""What is known of a topic's history: as much as a plan needs, however long the topic is.

Thread: none (pure values).

Time is cut into slots of one length. The rate of the busiest slot is the peak; what comes and goes within a slot is
seen in the arrivals of the busiest one, record by record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Busiest:
    """The slot with most records; its offsets are [start, end), with records of other slots among them perhaps."""

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
    keys: int  # different ones
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
    loads: tuple[PartitionLoad, ...]  # by partition; one without records has none
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
        """Records a second. What is shorter than a slot counts as one."""
        return self.records / max(self.slot, (self.last - self.first) / 1_000)

    @property
    def peak(self) -> float:
        """Records a second."""
        return self.rate(self.busiest.records)

    @property
    def heaviest_load(self) -> PartitionLoad:
        """The partition whose busiest slot is the busiest of all: the one that decides how many lanes there must be."""
        return max(self.loads, key=lambda load: load.busiest.records)

    def rate(self, records_of_a_slot: int) -> float:
        return records_of_a_slot / self.slot


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Records of one partition in the order of its log: the second each came at, from the first on, and a number for
    its key (None: without one)."""

    times: Sequence[float]
    keys: Sequence[int | None]

    def __len__(self) -> int:
        return len(self.times)

    def at_pace(self, factor: float) -> Arrivals:
        """The same, so many times as fast."""
        return Arrivals([time / factor for time in self.times], self.keys)

    def at_once(self, at_least: int, at_most: int) -> Arrivals:
        """The same keys as a backlog, over and over until there are enough of them."""
        many = min(max(len(self.keys), at_least), at_most)
        rounds = -(-many // len(self.keys))
        return Arrivals([0.0] * many, (list(self.keys) * rounds)[:many])


def arrivals_of(rows: Sequence[tuple[int, int | None]]) -> Arrivals:
    """From (ms since 1970, key) in the order of the log. A clock that went back counts as one that stood."""
    times: list[float] = []
    latest = first = rows[0][0] if rows else 0
    for stamp, _ in rows:
        latest = max(latest, stamp)
        times.append((latest - first) / 1_000)
    return Arrivals(times, [key for _, key in rows])
