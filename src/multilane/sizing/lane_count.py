"""How many lanes a partition needs, and the throughput of any number of lanes, by simulation.

Thread: none (pure).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from multilane.sizing.history import Arrivals
from multilane.sizing.simulation import SimulatedWork, ninety_ninth, simulate

_ROUNDS: Final = 10  # of all lanes in a backlog: enough that lanes that finish early hardly matter
_MOST_RECORDS: Final = 200_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits: the share of time that lanes may be busy, and how long 99 of 100 records may wait for a lane."""

    utilisation: float
    wait: float  # seconds


def least_lanes(rate: float, work: SimulatedWork, utilisation: float) -> int:
    """The fewest lanes that stay below the utilisation, however the arrivals are distributed."""
    return max(1, ceil(rate * work.latency / work.batch / utilisation - 1e-9))


def lanes_needed(arrivals: Arrivals, rate: float, work: SimulatedWork, bounds: Bounds) -> int:
    """The smallest number within both bounds. Waiting for a key does not count: more lanes do not shorten it."""

    def is_enough(lanes: int) -> bool:
        return ninety_ninth(simulate(arrivals, lanes, work).lane_waits) <= bounds.wait

    enough = least_lanes(rate, work, bounds.utilisation)
    if is_enough(enough):
        return enough
    too_few = enough
    while enough < len(arrivals) and not is_enough(enough):  # with a lane per record no record waits for a lane
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if is_enough(middle):
            enough = middle
        else:
            too_few = middle
    return enough


def throughput(arrivals: Arrivals, lanes: int, work: SimulatedWork) -> float:
    """Records per second of so many lanes with a backlog of such keys, where no window has to wait."""
    backlog = arrivals.at_once(_ROUNDS * lanes * work.batch, _MOST_RECORDS)
    return simulate(backlog, lanes, replace(work, fill=0.0)).throughput


def throughputs(arrivals: Arrivals, recommended: int, work: SimulatedWork) -> list[tuple[int, float]]:
    """The throughput of one lane, of the recommended number, of fractions of it and of twice as many."""
    counts = {1, 2 * recommended, *(max(1, recommended // part) for part in (1, 2, 4, 8))}
    return [(lanes, throughput(arrivals, lanes, work)) for lanes in sorted(counts)]
