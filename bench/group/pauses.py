"""How long partitions paused in a rebalance, from the arrival times of records.

Thread: none (pure).

A partition's records are those of all members together, so a gap lasts from the last record of the old owner to the
first of the new one. Partitions that only the first member ever read are "kept", the others "moved".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

# (when a poll returned, the partitions it had records of)
Arrival: TypeAlias = tuple[float, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Window:
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Pauses:
    """The longest gap of any partition of a kind, in seconds."""

    kept_at_join: float
    moved_at_join: float
    kept_at_leave: float
    moved_at_leave: float
    steady: float  # of any partition while no member joins or leaves: the noise of machine and client


def times_by_partition(arrivals: Iterable[Arrival]) -> dict[int, list[float]]:
    times: dict[int, list[float]] = {}
    for at, partitions in arrivals:
        for partition in partitions:
            times.setdefault(partition, []).append(at)
    return {partition: sorted(found) for partition, found in times.items()}


def longest_gap(times: Sequence[float], window: Window) -> float:
    """The longest gap that overlaps the window. Raises if no record arrived after its start: the gap is still open."""
    if not times or times[0] > window.start or times[-1] < window.end:
        raise ValueError(f"the records do not reach from {window.start:.3f} to {window.end:.3f}")
    return max(after - before for before, after in pairwise(times) if after > window.start and before < window.end)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows before the second member joins, when it joins, and when it leaves."""

    steady: Window
    join: Window
    leave: Window


def pauses(first: Sequence[Arrival], second: Sequence[Arrival], windows: Windows) -> Pauses:
    """The pauses, from the reads of the member that stays and of the member that joins and leaves."""
    moved = set(times_by_partition(second))
    together = times_by_partition([*first, *second])
    kept = set(together) - moved
    if not moved or not kept:
        raise ValueError(f"the second member read {sorted(moved)} of {sorted(together)}: nothing to compare")

    def longest(partitions: set[int], window: Window) -> float:
        return max(longest_gap(together[partition], window) for partition in partitions)

    return Pauses(
        kept_at_join=longest(kept, windows.join),
        moved_at_join=longest(moved, windows.join),
        kept_at_leave=longest(kept, windows.leave),
        moved_at_leave=longest(moved, windows.leave),
        steady=longest(kept | moved, windows.steady),
    )
