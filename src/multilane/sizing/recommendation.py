"""From a topic's history and goals to settings: lanes, batch size, consumers and partitions.

Thread: none (pure).

Single records come first, because any function takes them. Batches are for what single records cannot do: a key that is
hotter than one call after the other allows, more lanes than one wants, more calls than the processes manage. More
partitions come last: they change where keys are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from multilane.sizing.goals import Goals
from multilane.sizing.history import Arrivals, HeavyKey, History
from multilane.sizing.lane_count import lanes_needed, least_lanes, throughputs
from multilane.sizing.simulation import ninety_ninth, simulate


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key that takes most of a lane's time, or more than all of it (`busy` above 1) when it is single records."""

    key: HeavyKey
    rate: float  # records a second, at the peak that is planned for
    busy: float
    batch: int | None  # with which its records keep up; None: with none that is allowed

    @property
    def is_too_hot(self) -> bool:
        return self.busy > 1


@dataclass(frozen=True, slots=True)
class Recommendation:
    lanes: int  # for each partition: virtualPartitionCount
    batch: int  # batchSize
    consumers: int  # processes, or members on Spark
    partitions: int
    rate: float  # of the busiest partition, records a second: what lanes are planned for
    hot_keys: tuple[HotKey, ...]
    lane_wait: float  # seconds that 99 of 100 records of the simulation waited for a lane at most
    key_wait: float  # and for the one before them
    throughputs: tuple[tuple[int, float], ...]  # of so many lanes of the busiest partition, records a second
    is_met: bool  # False: the busiest partition is too much for these goals, and more partitions do not change that


@dataclass(frozen=True, slots=True)
class _Choice:
    batch: int
    lanes: int
    consumers: int
    partitions: int
    rate: float
    is_met: bool = True


def recommend(history: History, arrivals: Arrivals, goals: Goals) -> Recommendation:
    """`arrivals` are those of the busiest slot of the busiest partition, as they were."""
    hot = hot_keys(history, goals)
    choices = _Choices(history, arrivals, goals)
    choice = choices.best(_batch_of(hot))
    work = goals.work(choice.batch)
    outcome = simulate(choices.arriving_at(choice.rate), choice.lanes, work)
    return Recommendation(
        choice.lanes,
        choice.batch,
        choice.consumers,
        choice.partitions,
        choice.rate,
        hot,
        ninety_ninth(outcome.lane_waits),
        ninety_ninth(outcome.key_waits),
        tuple(throughputs(arrivals, choice.lanes, work)),
        choice.is_met,
    )


def hot_keys(history: History, goals: Goals) -> tuple[HotKey, ...]:
    """Those of the heaviest that need more of a lane than lanes are meant to be busy; the hottest first."""
    found = []
    for key in history.heaviest:
        rate = history.rate(key.peak) * goals.peak_factor
        busy = rate * goals.latency
        if busy > goals.utilisation:
            fitting = (size for size in goals.batches if busy / size <= goals.utilisation)
            found.append(HotKey(key, rate, busy, next(fitting, None)))
    return tuple(sorted(found, key=lambda one: -one.rate))


def consumers_needed(rates: Sequence[float], batch: int, goals: Goals) -> int | None:
    """The fewest of which none has too much to do, even if it has the busiest partitions: assignors go by the number of
    partitions, not by their load. None: with as many as there are partitions one still has."""
    shares = sorted((goals.process_share(rate, batch) for rate in rates), reverse=True)
    for consumers in range(1, len(shares) + 1):
        if sum(shares[: ceil(len(shares) / consumers)]) <= goals.utilisation:
            return consumers
    return None


def _batch_of(hot: Sequence[HotKey]) -> int:
    """The batch that all keys need that are too hot; those that no batch helps ask for none."""
    return max((key.batch for key in hot if key.is_too_hot and key.batch is not None), default=1)


@dataclass(slots=True)
class _Choices:
    history: History
    arrivals: Arrivals
    goals: Goals

    def best(self, at_least: int) -> _Choice:
        sizes = [size for size in self.goals.batches if size >= at_least]
        for batch in sizes:
            choice = self._as_it_is(batch)
            if choice is not None:
                return choice
        return self._with_more_partitions(sizes[-1])

    def _rates(self) -> list[float]:
        """Of all partitions, at the peak that is planned for."""
        busy = [self.history.rate(load.busiest.records) * self.goals.peak_factor for load in self.history.loads]
        return busy + [0.0] * (self.history.partitions - len(busy))

    def arriving_at(self, rate: float) -> Arrivals:
        """What came to the busiest partition, as if it had come at this rate."""
        return self.arrivals.at_pace(rate / self.history.rate(self.history.heaviest_load.busiest.records))

    def _as_it_is(self, batch: int) -> _Choice | None:
        """With the partitions that there are, if that is enough."""
        goals, rates = self.goals, self._rates()
        consumers, most = consumers_needed(rates, batch, goals), max(rates)
        if consumers is None or least_lanes(most, goals.work(batch), goals.utilisation) > goals.most_lanes:
            return None
        lanes = self._lanes(most, batch)
        return _Choice(batch, lanes, consumers, len(rates), most) if lanes <= goals.most_lanes else None

    def _with_more_partitions(self, batch: int) -> _Choice:
        """As many as an even share of the topic's peak needs; that keys spread evenly is hoped for."""
        goals, rates = self.goals, self._rates()
        peak = self.history.peak * goals.peak_factor
        for_lanes = least_lanes(peak, goals.work(batch), goals.utilisation) / goals.most_lanes
        for_processes = goals.process_share(peak, batch) / goals.utilisation
        partitions = max(ceil(for_lanes), ceil(for_processes))
        if partitions <= len(rates):  # an even share would do: it is one partition that has too much
            lanes = self._lanes(max(rates), batch)
            return _Choice(batch, lanes, len(rates), len(rates), max(rates), is_met=False)
        rate = peak / partitions
        consumers = consumers_needed([rate] * partitions, batch, goals) or partitions
        return _Choice(batch, self._lanes(rate, batch), consumers, partitions, rate)

    def _lanes(self, rate: float, batch: int) -> int:
        return lanes_needed(self.arriving_at(rate), rate, self.goals.work(batch), self.goals.bounds)
