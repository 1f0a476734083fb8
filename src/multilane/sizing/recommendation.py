"""Derives settings from a topic's history and goals: lanes, batch size, consumers and partitions.

Thread: none (pure).

Single records come first, because any function takes them. Batches follow where single records do not suffice: a key
too hot for one call after the other, more lanes than allowed, more calls than the processes manage. More partitions
come last: they move keys to other partitions.
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
    """A key that takes most of a lane's time with single records, or more than all of it (`busy` above 1)."""

    key: HeavyKey
    rate: float  # records per second, at the planned peak
    busy: float
    batch: int | None  # the batch size that keeps up with the key; None: no allowed size does

    @property
    def is_too_hot(self) -> bool:
        return self.busy > 1


@dataclass(frozen=True, slots=True)
class Recommendation:
    lanes: int  # for each partition: virtualPartitionCount
    batch: int  # batchSize
    consumers: int  # processes, or members on Spark
    partitions: int
    rate: float  # of the busiest partition, records per second: the rate that lanes are planned for
    hot_keys: tuple[HotKey, ...]
    lane_wait: float  # seconds that 99 of 100 simulated records waited for a lane at most
    key_wait: float  # and for the record before them of the same key
    throughputs: tuple[tuple[int, float], ...]  # (lanes, records per second) of the busiest partition
    is_met: bool  # False: the busiest partition exceeds these goals, even with more partitions


@dataclass(frozen=True, slots=True)
class _Choice:
    batch: int
    lanes: int
    consumers: int
    partitions: int
    rate: float
    is_met: bool = True


def recommend(history: History, arrivals: Arrivals, goals: Goals) -> Recommendation:
    """`arrivals` are the recorded ones of the busiest slot of the busiest partition."""
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
    """The heavy keys that alone exceed the utilisation of a lane; the hottest first."""
    found = []
    for key in history.heaviest:
        rate = history.rate(key.peak) * goals.peak_factor
        busy = rate * goals.latency
        if busy > goals.utilisation:
            fitting = (size for size in goals.batches if busy / size <= goals.utilisation)
            found.append(HotKey(key, rate, busy, next(fitting, None)))
    return tuple(sorted(found, key=lambda one: -one.rate))


def consumers_needed(rates: Sequence[float], batch: int, goals: Goals) -> int | None:
    """The fewest consumers without an overload, even for the one with the busiest partitions: assignors go by the
    number of partitions, not by their load. None if one is overloaded even with a consumer per partition."""
    shares = sorted((goals.process_share(rate, batch) for rate in rates), reverse=True)
    for consumers in range(1, len(shares) + 1):
        if sum(shares[: ceil(len(shares) / consumers)]) <= goals.utilisation:
            return consumers
    return None


def _batch_of(hot: Sequence[HotKey]) -> int:
    """The batch size that all too hot keys need; keys that no batch size helps do not count."""
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
        """The rates of all partitions at the planned peak."""
        busy = [self.history.rate(load.busiest.records) * self.goals.peak_factor for load in self.history.loads]
        return busy + [0.0] * (self.history.partitions - len(busy))

    def arriving_at(self, rate: float) -> Arrivals:
        """The arrivals of the busiest partition, scaled to this rate."""
        return self.arrivals.at_pace(rate / self.history.rate(self.history.heaviest_load.busiest.records))

    def _as_it_is(self, batch: int) -> _Choice | None:
        """A choice with the existing number of partitions; None if they are not enough."""
        goals, rates = self.goals, self._rates()
        consumers, most = consumers_needed(rates, batch, goals), max(rates)
        if consumers is None or least_lanes(most, goals.work(batch), goals.utilisation) > goals.most_lanes:
            return None
        lanes = self._lanes(most, batch)
        return _Choice(batch, lanes, consumers, len(rates), most) if lanes <= goals.most_lanes else None

    def _with_more_partitions(self, batch: int) -> _Choice:
        """As many partitions as an even share of the topic's peak needs, assuming that keys spread evenly."""
        goals, rates = self.goals, self._rates()
        peak = self.history.peak * goals.peak_factor
        for_lanes = least_lanes(peak, goals.work(batch), goals.utilisation) / goals.most_lanes
        for_processes = goals.process_share(peak, batch) / goals.utilisation
        partitions = max(ceil(for_lanes), ceil(for_processes))
        if partitions <= len(rates):  # an even share would suffice: a single partition is overloaded
            lanes = self._lanes(max(rates), batch)
            return _Choice(batch, lanes, len(rates), len(rates), max(rates), is_met=False)
        rate = peak / partitions
        consumers = consumers_needed([rate] * partitions, batch, goals) or partitions
        return _Choice(batch, self._lanes(rate, batch), consumers, partitions, rate)

    def _lanes(self, rate: float, batch: int) -> int:
        return lanes_needed(self.arriving_at(rate), rate, self.goals.work(batch), self.goals.bounds)
