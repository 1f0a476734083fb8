"""Durations, counted in buckets.

Thread: none (pure); one owner.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

# Seconds. From calls that never wait to batches that take minutes.
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Histogram:
    __slots__ = ("counts", "sums")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)  # the last one: longer than all bounds
        self.sums = [0.0] * (len(BOUNDS) + 1)

    def add(self, seconds: float, times: int = 1) -> None:
        at = bisect_left(BOUNDS, seconds)
        self.counts[at] += times
        self.sums[at] += seconds * times

    def groups(self) -> list[tuple[float, int]]:
        """(seconds, times) for each bucket that is not empty, with the mean of its durations. Adding them to another
        histogram gives the same counts and sum."""
        return [(total / times, times) for total, times in zip(self.sums, self.counts, strict=True) if times]

    @property
    def total(self) -> float:
        return sum(self.sums)
