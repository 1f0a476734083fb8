"""An application in a Spark worker that leases its partitions for a few seconds at a time: the composition root there.

Thread: loop; `counts` from any.

Consumers and their lane factories live as long as the worker process, processors as long as a lease. Triggers that
share a group member share a consumer here, too, and each has leases of its own. Calls that are in flight when a lease
ends are carried over: they go on here until they end, and the coordinator is notified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, Final, Protocol

from multilane.app.targets import find_app
from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import SystemClock
from multilane.engines.batches.active_lease import (
    ActiveLease,
    build_for,
    held_record,
    joint_starts,
    partition_of,
    shared_reading,
)
from multilane.engines.batches.messages import (
    FromWorker,
    HeldRecord,
    PartitionLease,
    TaskLease,
    held_to_json,
    retries_to_json,
)
from multilane.engines.lease_runner import LeaseRunner
from multilane.lanes.assignment import Starts
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.lanes.failure_log import FailureCollector
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.shared_processor import SharedProcessor
from multilane.logs import logger
from multilane.metrics.observer import Count, Duration, Gauge, ReportBuffer
from multilane.runtime.gauges import age_gauges, lane_gauges
from multilane.runtime.group_lanes import GroupLanes
from multilane.runtime.lane_factory import LaneFactory
from multilane.runtime.shared_lanes import SharedLanes, grouped
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

log = logger(__name__)

_POLL: Final = 0.1  # seconds between checks of calls that are carried over
_SETTLED: Final = "lanes.records.settled"

HeldRecords = dict[Record, HeldRecord]


class Send(Protocol):
    """Sends a message to the coordinator."""

    def __call__(self, kind: str, **fields: Any) -> None: ...


@dataclass(slots=True)
class _LeaseExpiry:
    """Until then the group assigns leased partitions to no other member, as the coordinator reported; no limit before
    its first report."""

    fenced_after: float = inf


@dataclass(slots=True)
class _LeaseReader:
    """What reads on its own here: one consumer of the configuration, or the triggers that share a group member."""

    lanes: GroupLanes
    consumer: AsyncConsumer
    lease_runner: LeaseRunner[PartitionProcessor | SharedProcessor] | None = None


@dataclass(slots=True)
class _ConsumerWork:
    """One consumer of the configuration: what lives longer than a lease."""

    lane_factory: LaneFactory
    reader: _LeaseReader
    expiry: _LeaseExpiry = field(default_factory=_LeaseExpiry)
    member_id: str | None = None  # of the group member that leases out the partitions, as of the last lease


class LeaseWorkerApp:
    """Made from `module:name`; the coordinator names this class by its import path."""

    def __init__(self, target: str) -> None:
        self._app = find_app(target)
        self._app.check_runnable()
        self._clock = SystemClock()
        self._news = ReportBuffer()
        self._failed = FailureCollector()
        self._readers: list[_LeaseReader] = []
        self._consumers: dict[str, _ConsumerWork] = {}
        self._active: dict[int, ActiveLease] = {}
        self._carried: dict[asyncio.Task[None], ActiveLease] = {}
        self._serving: list[asyncio.Task[list[PartitionLease]]] = []  # one for each reader of the task's leases
        # Of a task that is about to end.
        self._to_carry_over: list[tuple[ActiveLease, PartitionProcessor, HeldRecords]] = []
        self._ends_early = False
        self._failure: BaseException | None = None
        self._is_closed = False

    async def open(self, send: Send) -> None:
        self._send = send
        try:
            with self._app.failures_to(self._failed):
                lane_factories = self._app.lane_factories(self._news)
            for lanes in grouped(lane_factories, self._app.config, self._clock):
                consumer = AsyncConsumer(lanes.source.reader_properties, clock=self._clock, observer=self._news)
                self._readers.append(reader := _LeaseReader(lanes, consumer))
                if isinstance(lanes, SharedLanes):
                    lanes.read_for(self._news, partial(_cut, reader), partial(_fail, reader))
                for name, lane_factory in lanes.consumers.items():
                    self._consumers[name] = work = _ConsumerWork(lane_factory, reader)
                    lane_factory.act_for(partial(_member_of, work))
                    lane_factory.fence.watch(work.expiry)
                await lanes.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Abandon calls in flight: their results do not count any more."""
        self._is_closed = True
        self.end()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await asyncio.gather(*self._carried, return_exceptions=True)
        for reader in self._readers:
            await reader.consumer.close(0)
            await reader.lanes.close()
        await self._app.close_producers()

    def renew(self, until: Mapping[str, float]) -> None:
        for name, work in self._consumers.items():
            work.expiry.fenced_after = until.get(name, work.expiry.fenced_after)

    def counts(self) -> list[Count | Duration]:
        return self._news.take()

    def gauges(self) -> list[Gauge]:
        found: list[Gauge] = []
        for name in self._consumers:
            known = [*self._active.values(), *self._carried.values()]
            processors = dict.fromkeys(a.processor for a in known if a.lease.consumer == name and a.processor)
            found += lane_gauges(name, processors)
            found += age_gauges(name, processors, self._clock.wall())
        return found

    def failures(self) -> list[dict[str, Any]]:
        return self._failed.take()

    # --- the leases of a task ----------------------------------------------------------------------------------------

    async def serve(self, lease: TaskLease) -> list[PartitionLease]:
        """Process the leases until their time is up, and return them, except those that were revoked and returned
        before. The ends of calls that are carried over are reported after that: until then the coordinator does not
        know of them."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._ends_early = False
        for name, work in self._consumers.items():
            work.member_id = lease.members.get(name)
        self._active |= {granted.number: ActiveLease(granted) for granted in lease.leases}
        consumers = dict.fromkeys(granted.consumer for granted in lease.leases)
        self._serving = [
            asyncio.create_task(self._process(reader, leases, lease))
            for reader in self._readers
            if (leases := self._of(reader))
        ]
        try:
            returned = [one for some in await asyncio.gather(*self._serving) for one in some]
            for name in consumers:
                await self._consumers[name].lane_factory.write_audit()
        except BaseException:
            self.end()
            await asyncio.gather(*self._serving, return_exceptions=True)
            await asyncio.gather(*(processor.drain(self._clock.monotonic()) for _, processor, _ in self._to_carry_over))
            raise
        finally:
            self._active.clear()
            to_carry_over, self._to_carry_over = self._to_carry_over, []
            self._send(FromWorker.COUNTS, counts=self.counts(), failures=self.failures())
        self._send(FromWorker.OVER, number=lease.number, units=[one.to_json() for one in returned])
        for active, processor, held in to_carry_over:
            task = asyncio.create_task(self._carry_over(active, processor, held))
            self._carried[task] = active
            task.add_done_callback(self._carried.pop)
        return returned

    def end(self) -> None:
        """The time of the leases is up."""
        self._ends_early = True
        for reader in self._readers:
            if reader.lease_runner is not None:
                reader.lease_runner.end()

    def apply_overrides(self, consumer: str, overrides: ConsumerOverrides) -> None:
        """Applies to current leases and to all later ones."""
        work = self._consumers.get(consumer)
        if work is not None:
            processors = [
                active.processor
                for active in self._active.values()
                if active.lease.consumer == consumer and active.processor is not None
            ]
            work.lane_factory.apply_overrides(overrides, processors)

    def _of(self, reader: _LeaseReader) -> list[ActiveLease]:
        return [one for one in self._active.values() if one.lease.consumer in reader.lanes.consumers]

    async def _process(
        self, reader: _LeaseReader, leases: Collection[ActiveLease], task_lease: TaskLease
    ) -> list[PartitionLease]:
        gone = {p for one in leases if one.revoke_deadline is not None for p in one.lease.points}  # before they began
        revoked = [one for one in leases if one.lease.points.keys() & gone]  # triggers of a partition together
        if revoked:
            self._send(FromWorker.RETURN, units=[one.as_known.to_json() for one in revoked])
            leases = [one for one in leases if one not in revoked]
        shared, max_behind = shared_reading(reader.lanes)
        starts = joint_starts([one.lease for one in leases], shared, max_behind)
        for lane_factory in reader.lanes.consumers.values():
            await lane_factory.look_up_backlogs(reader.consumer, starts)

        async def build(some: Starts) -> PartitionProcessor | SharedProcessor:
            return await build_for([one for one in leases if one.lease.points.keys() & some.keys()], reader.lanes, some)

        async def report(processors: Collection[PartitionProcessor | SharedProcessor]) -> None:
            await self._report([one for one in leases if one.fed in processors], FromWorker.PROGRESS)

        drain = reader.lanes.config.rebalance_timeout / 2
        reader.lease_runner = LeaseRunner(
            reader.consumer, reader.lanes.source.topics, build, report, drain, self._clock
        )
        if self._ends_early:
            reader.lease_runner.end()
        try:
            processors = await reader.lease_runner.run(starts, task_lease.seconds, task_lease.patience)
        finally:
            reader.lease_runner = None
        return [await self._returned(one) for one in leases if one.fed in processors]

    async def _report(self, leases: Collection[ActiveLease], kind: FromWorker) -> None:
        """How far they are now. What a consumer cannot prove in its audit is not reported: of PROGRESS nothing, of
        RETURN what was known before."""
        progress = {one: self._progress_of(one) for one in leases}
        names = dict.fromkeys(one.lease.consumer for one in leases)
        kept = {name for name in names if await self._consumers[name].lane_factory.try_write_audit()}
        reported = []
        for one, lease in progress.items():
            if one.lease.consumer in kept:
                one.reported = lease
                reported.append(lease)
            elif kind is FromWorker.RETURN:
                reported.append(one.as_known)
        if reported:
            self._send(kind, units=[lease.to_json() for lease in reported])

    def _progress_of(self, active: ActiveLease) -> PartitionLease:
        self._news.count(_SETTLED, active.settled - active.counted, consumer=active.lease.consumer)
        active.counted = active.settled
        return active.progress

    async def _returned(self, active: ActiveLease) -> PartitionLease:
        """The lease as it is returned. Its lanes begin no new call. Calls in flight are carried over, unless the lease
        is revoked."""
        processor = active.processor
        if processor is None:
            return active.as_known
        if not processor.in_flight_or_pending or active.revoke_deadline is not None or self._is_closed:
            await processor.drain(active.revoke_deadline or self._clock.monotonic())
        open_ = {(p, offset) for p in active.lease.points for offset in processor.unsettled(p)}
        in_flight = set(processor.in_flight)
        held = {
            r: held_record(r, blocks_key=r in in_flight)
            for r in processor.in_flight_or_pending
            if (partition_of(r), r.offset) in open_
        }
        lease = self._progress_of(active)
        retries = tuple(r for r in processor.retried.values() if (partition_of(r), r.offset) in open_)
        if held:
            processor.listen(lambda: None, self._fail)
            self._to_carry_over.append((active, processor, held))
        else:
            await processor.drain(self._clock.monotonic())  # its last records were settled a moment ago
        return replace(lease, held=tuple(held.values()), retries=retries)

    async def _carry_over(self, active: ActiveLease, processor: PartitionProcessor, held: HeldRecords) -> None:
        """Until all calls in flight have ended, or the lease is revoked. This task must not be cancelled: a task that
        is cancelled before its first step runs none of its code."""
        try:
            while held and active.revoke_deadline is None and not self._is_closed:
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=_POLL)
                await self._send_released(active, processor, held)
        finally:
            await processor.drain(active.revoke_deadline or self._clock.monotonic())
            await self._send_released(active, processor, held)

    async def _send_released(self, active: ActiveLease, processor: PartitionProcessor, held: HeldRecords) -> None:
        in_flight = set(processor.in_flight_or_pending)
        ended = {record: held[record] for record in held if record not in in_flight}
        if not ended:
            return
        settled, undone, retries = [], [], []
        for record, released in ended.items():
            del held[record]
            if not processor.is_unsettled(record):
                settled.append(released)
                continue
            undone.append(released)
            retry = processor.retried.get((record.topic, record.offset))
            retries += [] if retry is None else [retry]
        if settled and not await self._consumers[active.lease.consumer].lane_factory.try_write_audit():
            settled, undone = [], [*undone, *settled]  # and so they are redelivered
        self._news.count(_SETTLED, len(settled), consumer=active.lease.consumer)
        self._send(
            FromWorker.RELEASED,
            unit=active.lease.number,
            settled=held_to_json(settled),
            undone=held_to_json(undone),
            tried=retries_to_json(retries),
        )

    def _fail(self, error: BaseException) -> None:
        """Of a call that was carried over: the next task raises it."""
        log.error("a carried-over call failed: %s", error)
        self._failure = self._failure or error

    def release(self, number: int, held: Iterable[HeldRecord]) -> None:
        """Records that other workers held are settled: their keys resume. Not if order survives a retry: the next lease
        takes account of what is in the retry topic by then."""
        active = self._active.get(number)
        if active is not None and not self._consumers[active.lease.consumer].lane_factory.source.keeps_order:
            active.release(held)

    # --- revoked leases ----------------------------------------------------------------------------------------------

    async def revoke(self, number: int, seconds: float) -> None:
        """The group revokes the partitions: end the calls in flight within so many seconds, also those carried over
        from earlier leases."""
        carried = [*(one for one, *_ in self._to_carry_over), *self._carried.values()]
        for one in [*self._active.values(), *carried]:
            if one.lease.number == number:
                one.revoke_deadline = self._clock.monotonic() + seconds
        active = self._active.get(number)
        runner = None if active is None else self._consumers[active.lease.consumer].reader.lease_runner
        if active is not None and runner is not None:
            ended = await runner.revoke(frozenset(active.lease.points), seconds)
            returned = [one for one in self._active.values() if one.fed in ended]  # triggers share what is fed
            await self._report(returned, FromWorker.RETURN)


def _cut(reader: _LeaseReader, partition: TopicPartition, offset: int) -> None:
    if reader.lease_runner is not None:
        reader.lease_runner.cut(partition, offset)


def _fail(reader: _LeaseReader, error: BaseException) -> None:
    if reader.lease_runner is not None:
        reader.lease_runner.fail(error)


def _member_of(work: _ConsumerWork) -> str | None:
    return work.member_id
