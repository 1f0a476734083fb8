"""What a plan has to reach, and what it may count on.

Thread: none (pure values).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from multilane.sizing.lane_count import Bounds
from multilane.sizing.simulation import SimulatedWork

BATCHES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)  # sizes that are tried, in this order


@dataclass(frozen=True, slots=True)
class Goals:
    """Times are seconds, rates records or calls a second.

    `process_calls` is what our benchmark of lanes sees with an HTTP client library, on one core; `process_records` a
    third of what it sees with batches, because payloads have to be decoded too.
    """

    latency: float  # of one call
    peak_factor: float = 1.0  # plan for so many times the peak that was measured
    utilisation: float = 0.7  # the share of time that lanes and processes may be busy
    wait: float = 1.0
    most_lanes: int = 200  # for each partition
    most_batch: int = 500  # 1: the function takes single records
    process_calls: float = 8_000.0
    process_records: float = 100_000.0

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.utilisation, self.wait)

    @property
    def batches(self) -> list[int]:
        return [size for size in BATCHES if size <= self.most_batch]

    def work(self, batch: int) -> SimulatedWork:
        """A window may wait for half of what its records may: the other half is for a lane."""
        return SimulatedWork(self.latency, batch, self.wait / 2 if batch > 1 else 0.0)

    def process_share(self, rate: float, batch: int) -> float:
        """How much of a process a rate takes: calls cost, and so do the records in them."""
        return rate / batch / self.process_calls + rate / self.process_records
