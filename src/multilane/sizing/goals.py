"""The goals of a plan, and the capacities it may assume.

Thread: none (pure values).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from multilane.sizing.lane_count import Bounds
from multilane.sizing.simulation import SimulatedWork

BATCHES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)  # sizes to try, in this order


@dataclass(frozen=True, slots=True)
class Goals:
    """Times are in seconds, rates in records or calls per second.

    `process_calls` is the result of our lanes benchmark with an HTTP client library, on one core; `process_records` is
    a third of its result with batches, because payloads have to be decoded too.
    """

    latency: float  # of one call
    peak_factor: float = 1.0  # plan for so many times the measured peak
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
        """A window may use half of its records' waiting time to fill; the other half is for waiting for a lane."""
        return SimulatedWork(self.latency, batch, self.wait / 2 if batch > 1 else 0.0)

    def process_share(self, rate: float, batch: int) -> float:
        """The share of a process that a rate takes: each call costs, and each record in it."""
        return rate / batch / self.process_calls + rate / self.process_records
