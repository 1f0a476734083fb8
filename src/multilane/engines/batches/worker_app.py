"""An application in a Spark worker that is lent its partitions, a few seconds at a time: the composition root there.

Thread: loop; `counts` from any.

Outfits and consumers live as long as the worker process does, teams as long as a loan. What a loan ends without goes on
here until it has ended, and the lender is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, Protocol

from multilane.app.targets import find_app
from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import SystemClock
from multilane.engines.batches.messages import Again, HeldRecord, PartitionLease, TaskLease, held_to_json, tried_to_json
from multilane.engines.lease_runner import LeaseRunner
from multilane.lanes.assignment import Starts, start_of
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.lanes.failure_log import FailureNews
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.logs import logger
from multilane.metrics import News
from multilane.runtime.handover import Handover
from multilane.runtime.lane_factory import LaneFactory
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

log = logger(__name__)

_LOOK: Final = 0.1  # seconds between looks at what goes on beyond its loan
_SETTLED: Final = "lanes.records.settled"


class Tell(Protocol):
    """Says something to the lender."""

    def __call__(self, kind: str, **fields: Any) -> None: ...


@dataclass(slots=True)
class _LeaseExpiry:
    """Until when nobody else gets what is lent, as the lender has told; at first it has told nothing."""

    fenced_after: float = inf


@dataclass(slots=True)
class _ConsumerWork:
    """One consumer of the configuration: what lives longer than a loan."""

    lane_factory: LaneFactory
    consumer: AsyncConsumer
    lease: _LeaseExpiry = field(default_factory=_LeaseExpiry)
    lease_runner: LeaseRunner | None = None


@dataclass(slots=True, eq=False)
class _ActiveLease:
    """A unit in our hands."""

    unit: PartitionLease  # as it was lent
    processor: PartitionProcessor | None = None
    settled_before: int = 0
    began_again: dict[TopicPartition, Again] = field(default_factory=dict)  # its logs that went back
    counted: int = 0  # settled records that the observer was told of
    told: PartitionLease | None = None  # how the lender knows it, if it was told since
    wanted_back_by: float | None = None

    @property
    def settled(self) -> int:
        return self.settled_before + (0 if self.processor is None else self.processor.settled)

    def begin_with(self, starts: Starts) -> None:
        """A log of it may go on below what was read, or may not be the one that it was lent with."""
        lent = self.unit.starts
        for partition, start in starts.items():
            was = lent[partition] if self.processor is None else start_of(self.processor, partition)
            if (start.offset, start.runs) != (was.offset, was.runs):
                times, offset = self.began_again.get(partition, Again(0, start.offset))
                self.began_again[partition] = Again(times + 1, min(offset, start.offset))
                self.unit = self.unit.before(partition, start.offset)

    @property
    def as_known(self) -> PartitionLease:
        """As the lender knows it. Records that others are at are theirs to speak of."""
        return self.told or replace(self.unit, held=())


class LeaseWorkerApp:
    """Made from `module:name`; the lender names this class by its import path."""

    def __init__(self, target: str) -> None:
        self._app = find_app(target)
        self._app.check_runnable()
        self._clock = SystemClock()
        self._news = News()
        self._failed = FailureNews()
        self._desks: dict[str, _ConsumerWork] = {}
        self._lent: dict[int, _ActiveLease] = {}
        self._lingering: dict[asyncio.Task[None], _ActiveLease] = {}
        self._works: list[asyncio.Task[list[PartitionLease]]] = []  # one for each consumer of the loan
        self._unfinished: list[
            tuple[_ActiveLease, PartitionProcessor, dict[Record, HeldRecord]]
        ] = []  # of a loan that is about to end
        self._ends_early = False
        self._failure: BaseException | None = None
        self._is_closed = False

    async def open(self, tell: Tell) -> None:
        self._tell = tell
        try:
            with self._app.failures_to(self._failed):
                lane_factories = self._app.lane_factories(self._news)
            for name, lane_factory in lane_factories.items():
                consumer = AsyncConsumer(lane_factory.source.reader_properties, clock=self._clock, observer=self._news)
                self._desks[name] = desk = _ConsumerWork(lane_factory, consumer)
                lane_factory.fence.watch(desk.lease)
                await lane_factory.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Whatever is in work is given up: nobody wants it any more."""
        self._is_closed = True
        self.end()
        await asyncio.gather(*self._works, return_exceptions=True)
        await asyncio.gather(*self._lingering, return_exceptions=True)
        for desk in self._desks.values():
            await desk.consumer.close(0)
            await desk.lane_factory.close()
        await self._app.close_producers()

    def renew(self, until: Mapping[str, float]) -> None:
        for name, desk in self._desks.items():
            desk.lease.fenced_after = until.get(name, desk.lease.fenced_after)

    def counts(self) -> list[tuple[str, dict[str, str], float]]:
        return self._news.take()

    def failures(self) -> list[dict[str, Any]]:
        return self._failed.take()

    # --- a loan ------------------------------------------------------------------------------------------------------

    async def serve(self, loan: TaskLease) -> list[PartitionLease]:
        """Work on it until its time is up, and tell how its units are then, but for those that were given back before.
        How what goes on beyond it ends is told after that: nobody knows of it before."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._ends_early = False
        by_consumer: dict[str, list[_ActiveLease]] = {}
        for unit in loan.units:
            self._lent[unit.number] = one = _ActiveLease(unit)
            by_consumer.setdefault(unit.consumer, []).append(one)
        self._works = [
            asyncio.create_task(self._work(self._desks[name], lent, loan)) for name, lent in by_consumer.items()
        ]
        try:
            units = [unit for some in await asyncio.gather(*self._works) for unit in some]
            for name in by_consumer:
                await self._desks[name].lane_factory.write_audit()
        except BaseException:
            self.end()
            await asyncio.gather(*self._works, return_exceptions=True)
            await asyncio.gather(*(processor.drain(self._clock.monotonic()) for _, processor, _ in self._unfinished))
            raise
        finally:
            self._lent.clear()
            unfinished, self._unfinished = self._unfinished, []
            self._tell("counts", counts=self.counts(), failures=self.failures())
        self._tell("over", number=loan.number, units=[unit.to_json() for unit in units])
        for one, processor, held in unfinished:
            task = asyncio.create_task(self._linger(one, processor, held))
            self._lingering[task] = one
            task.add_done_callback(self._lingering.pop)
        return units

    def end(self) -> None:
        """The time of the loan is up."""
        self._ends_early = True
        for desk in self._desks.values():
            if desk.lease_runner is not None:
                desk.lease_runner.end()

    def steer(self, consumer: str, steering: ConsumerOverrides) -> None:
        """What is lent now, and all that will be."""
        desk = self._desks.get(consumer)
        if desk is not None:
            lent = [
                one.processor
                for one in self._lent.values()
                if one.unit.consumer == consumer and one.processor is not None
            ]
            desk.lane_factory.apply_overrides(steering, lent)

    async def _work(self, desk: _ConsumerWork, lent: Collection[_ActiveLease], loan: TaskLease) -> list[PartitionLease]:
        unwanted = [one for one in lent if one.wanted_back_by is not None]  # asked back before it was begun
        if unwanted:
            self._tell("given", units=[one.as_known.to_json() for one in unwanted])
            lent = [one for one in lent if one not in unwanted]
        by_partition = {p: one for one in lent for p in one.unit.places}
        starts = {p: start for one in lent for p, start in one.unit.starts.items()}

        async def build(some: Starts) -> PartitionProcessor:
            one = by_partition[next(iter(some))]
            one.begin_with(some)
            processor = await desk.lane_factory.build(some, _remains(one.unit))
            one.settled_before = one.settled  # by a team whose log went back
            one.processor = processor
            return processor

        async def tell(processors: Collection[PartitionProcessor]) -> None:
            units = {one: self._state(one) for one in lent if one.processor in processors}
            if await desk.lane_factory.try_write_audit():
                for one, unit in units.items():
                    one.told = unit
                self._tell("told", units=[unit.to_json() for unit in units.values()])

        drain = desk.lane_factory.config.rebalance_timeout / 2
        desk.lease_runner = LeaseRunner(desk.consumer, desk.lane_factory.source.topics, build, tell, drain, self._clock)
        if self._ends_early:
            desk.lease_runner.end()
        try:
            processors = await desk.lease_runner.run(starts, loan.seconds, loan.patience)
        finally:
            desk.lease_runner = None
        return [await self._ended(one) for one in lent if one.processor in processors]

    def _state(self, one: _ActiveLease) -> PartitionLease:
        """How it is by now."""
        processor = one.processor
        if processor is None:
            return one.as_known
        self._news.count(_SETTLED, one.settled - one.counted, consumer=one.unit.consumer)
        one.counted = one.settled
        places = {p: processor.full_commit_point(p) for p in one.unit.places}
        return replace(
            one.unit, places=places, held=(), tried=(), settled=one.settled, began_again=dict(one.began_again)
        )

    async def _ended(self, one: _ActiveLease) -> PartitionLease:
        """Nothing of it is begun any more. What has not ended goes on, unless the unit is wanted back altogether."""
        processor = one.processor
        if processor is None:
            return one.as_known
        if not processor.unfinished or one.wanted_back_by is not None or self._is_closed:
            await processor.drain(one.wanted_back_by or self._clock.monotonic())
        open_ = {(p, offset) for p in one.unit.places for offset in processor.queue.intakes[p].ledger.unsettled}
        at_work = set(processor.in_flight)
        held = {r: _held(r, fences=r in at_work) for r in processor.unfinished if (_place(r), r.offset) in open_}
        unit = self._state(one)
        tried = tuple(record for record in processor.retried.values() if (_place(record), record.offset) in open_)
        if held:
            processor.listen(lambda processor: None, self._fail)
            self._unfinished.append((one, processor, held))
        else:
            await processor.drain(self._clock.monotonic())  # what it was at has been settled a moment ago
        return replace(unit, held=tuple(held.values()), tried=tried)

    async def _linger(self, one: _ActiveLease, processor: PartitionProcessor, held: dict[Record, HeldRecord]) -> None:
        """Until all that was in work has ended, or somebody else is to have the unit. Nobody cancels this: a task that
        is cancelled before its first step does nothing at all."""
        try:
            while held and one.wanted_back_by is None and not self._is_closed:
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=_LOOK)
                await self._release(one, processor, held)
        finally:
            await processor.drain(one.wanted_back_by or self._clock.monotonic())
            await self._release(one, processor, held)

    async def _release(self, one: _ActiveLease, processor: PartitionProcessor, held: dict[Record, HeldRecord]) -> None:
        at_work = set(processor.unfinished)
        ended = {record: held[record] for record in held if record not in at_work}
        if not ended:
            return
        done, undone, tried = [], [], []
        for record, told in ended.items():
            del held[record]
            if record.offset not in processor.queue.intakes[_place(record)].ledger:
                done.append(told)
                continue
            undone.append(told)
            again = processor.retried.get((record.topic, record.offset))
            tried += [] if again is None else [again]
        if done and not await self._desks[one.unit.consumer].lane_factory.try_write_audit():
            done, undone = [], [*undone, *done]  # and so they come again
        self._news.count(_SETTLED, len(done), consumer=one.unit.consumer)
        self._tell(
            "released",
            unit=one.unit.number,
            settled=held_to_json(done),
            undone=held_to_json(undone),
            tried=tried_to_json(tried),
        )

    def _fail(self, error: BaseException) -> None:
        """Of a lane that went on beyond its loan: whoever serves next tells it."""
        log.error("a call that was carried over failed: %s", error)
        self._failure = self._failure or error

    def release_held(self, number: int, held: Iterable[HeldRecord]) -> None:
        """Records of a unit that somebody else was at are settled: their keys go on. Not where order survives a retry:
        what is in the retry topic by now is looked at with the next loan."""
        one = self._lent.get(number)
        if one is None or one.processor is None or self._desks[one.unit.consumer].lane_factory.source.keeps_order:
            return
        known = {fenced for fenced in one.unit.held if fenced.fences}
        one.processor.release_held([_record(record) for record in held if record in known])

    # --- units that are wanted back ----------------------------------------------------------------------------------

    async def give_back(self, number: int, seconds: float) -> None:
        """The group wants it: end what is in work within so many seconds, also what earlier loans ended without."""
        ended_before = [*(one for one, *_ in self._unfinished), *self._lingering.values()]
        for any_of_it in [*self._lent.values(), *ended_before]:
            if any_of_it.unit.number == number:
                any_of_it.wanted_back_by = self._clock.monotonic() + seconds
        one = self._lent.get(number)
        desk = None if one is None else self._desks[one.unit.consumer]
        if one is not None and desk is not None and desk.lease_runner is not None:
            ended = await desk.lease_runner.give_back(frozenset(one.unit.places), seconds)
            if one.processor in ended:
                unit = self._state(one)
                kept = await desk.lane_factory.try_write_audit()
                self._tell("given", units=[(unit if kept else one.as_known).to_json()])


def _place(record: Record) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


def _held(record: Record, *, fences: bool) -> HeldRecord:
    return HeldRecord(_place(record), record.offset, record.key, fences)


def _record(held: HeldRecord) -> Record:
    return Record(*held.partition, held.offset, 0, 0, held.key, None)


def _remains(unit: PartitionLease) -> Handover:
    keys = tuple(one.key for one in unit.held if one.fences)
    return Handover(keys, {(record.topic, record.offset): record for record in unit.tried})
