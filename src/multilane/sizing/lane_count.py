"""How many lanes a partition needs, and what any number of them gets done: found by simulating.

Thread: none (pure).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from multilane.sizing.history import Arrivals
from multilane.sizing.simulation import SimulatedWork, ninety_ninth, simulate

_ROUNDS: Final = 10  # of all lanes in a backlog: that some of them end sooner than others counts for little then
_MOST: Final = 200_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What lanes have to keep: the share of time they may be busy, and what 99 of 100 records may wait for one."""

    utilisation: float
    wait: float  # seconds


def least_lanes(rate: float, work: SimulatedWork, utilisation: float) -> int:
    """As many as keep below the utilisation, whatever comes when."""
    return max(1, ceil(rate * work.latency / work.batch / utilisation - 1e-9))


def lanes_needed(arrivals: Arrivals, rate: float, work: SimulatedWork, bounds: Bounds) -> int:
    """The smallest number that keeps both bounds. Waiting for a key is left out: no number of lanes shortens it."""

    def is_enough(lanes: int) -> bool:
        return ninety_ninth(simulate(arrivals, lanes, work).lane_waits) <= bounds.wait

    enough = least_lanes(rate, work, bounds.utilisation)
    if is_enough(enough):
        return enough
    too_few = enough
    while enough < len(arrivals) and not is_enough(enough):  # with a lane for each record none waits for one
        too_few, enough = enough, 2 * enough
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if is_enough(middle):
            enough = middle
        else:
            too_few = middle
    return enough


def throughput(arrivals: Arrivals, lanes: int, work: SimulatedWork) -> float:
    """Records a second that so many lanes work off when there is a backlog of such keys. No window waits then."""
    backlog = arrivals.at_once(_ROUNDS * lanes * work.batch, _MOST)
    return simulate(backlog, lanes, replace(work, fill=0.0)).throughput


def throughputs(arrivals: Arrivals, recommended: int, work: SimulatedWork) -> list[tuple[int, float]]:
    """Of one lane, of the recommended number, of parts of it and of twice as many."""
    counts = {1, 2 * recommended, *(max(1, recommended // part) for part in (1, 2, 4, 8))}
    return [(lanes, throughput(arrivals, lanes, work)) for lanes in sorted(counts)]
