"""Builds everything that the lanes of one consumer need: listeners, threads or processes, and a processor for each
partition (or for a partition and its retry partition together, where order survives a retry).

Thread: loop.

A composition root. Owns the processes and the audit, from `open` to `close`. Where failed records go is built by
`failure_routes.py`; what begins and ends with a processor is in `processor_lifetimes.py`. Never feeds the processors,
and never commits what they settle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from multilane.audit.record_files import AuditRecordFiles
from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.commit.journal import Notes
from multilane.config.app.cluster import ClusterConfig
from multilane.errors import AuditNotWritten, MultilaneError
from multilane.lanes.assignment import Start
from multilane.lanes.backlog import Backlogs, LooksUpEnds
from multilane.lanes.consumer_overrides import AS_CONFIGURED, ConsumerOverrides
from multilane.lanes.failure_log import FailureLog, FailureSink
from multilane.lanes.fence import Fence
from multilane.lanes.gate import NO_GATE
from multilane.lanes.ordering import order_of
from multilane.lanes.partition_events import PartitionEvents
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.partition_queue import MAIN, PartitionQueue
from multilane.lanes.processes import Processes
from multilane.lanes.slow_calls import SlowCalls
from multilane.lanes.threads import Threads
from multilane.lanes.watch import Watch
from multilane.lanes.work import Work
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.call_timer import CallTimer
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.listener import Listener, Runner
from multilane.listeners.signature import read_signature
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer, takes_durations
from multilane.outcome.in_place import InPlace
from multilane.outcome.parking import Parking
from multilane.runtime.consumer_source import ConsumerSource
from multilane.runtime.crash_watch import CrashWatch
from multilane.runtime.failure_routes import ConsumerFailureRoutes
from multilane.runtime.handover import NO_HANDOVER, Handover, notes_for
from multilane.runtime.payloads import Payloads
from multilane.runtime.processor_lifetimes import ProcessorLifetimes
from multilane.runtime.queue_parts import build_chains, build_intake
from multilane.runtime.registration import Function, Interceptors, Registration
from multilane.types import TopicPartition
from multilane.wire.records.loading import load_kernels
from multilane.wire.records.record import Record

log = logger(__name__)


class LaneFactory:
    """Make it inside the running loop."""

    def __init__(
        self,
        registration: Registration,
        cluster: ClusterConfig,
        interceptors: Interceptors,
        clock: Clock,
        observer: Observer = NO_OBSERVER,
        in_place: InPlace | None = None,
    ) -> None:
        """`in_place`: failed records are retried in place, and the configuration has no retry topic."""
        self.registration = registration
        self.config = config = registration.config
        self._interceptors = interceptors
        self._clock = clock
        self.trigger = ""  # its name, if it shares the group with other consumers
        self._chain = InterceptorChain(
            config.group_id,
            span=config.tracer or config.group_id,
            interceptors=interceptors.consume,
            error_interceptors=interceptors.errors,
            tracers=interceptors.tracers,
            has_last_step=interceptors.last_step is not None,
        )
        self._processes = Processes(config.processes) if config.processes else None
        self._routes = ConsumerFailureRoutes(config, cluster, interceptors.last_step, clock, observer, in_place)
        self.fence = Fence(config.name, clock)
        self._slow_calls = SlowCalls()
        self._timer = CallTimer(observer, config.name, clock) if takes_durations(observer) else None
        self.failures: FailureSink = FailureLog(clock)  # an engine with several factories replaces it
        self._overrides = AS_CONFIGURED
        self._audit = AuditRecordFiles(config.audit, config.group_id, clock) if config.audit else None
        self._lifetimes = ProcessorLifetimes(config, cluster, self._routes.gate, self._audit, CrashWatch(clock))
        self.source = ConsumerSource(config, cluster)
        self._payloads = Payloads(config, cluster, clock, [registration.function, registration.retry])
        self._backlogs = Backlogs(self.source.reader_properties | {"auto.offset.reset": "earliest"}, clock)

    def share_crash_watch(self, crash_watch: CrashWatch) -> LaneFactory:
        """Use the crash watch of the other consumers of the process. Call it before `open`."""
        self._lifetimes.crash_watch = crash_watch
        return self

    def bind_to(self, consumer: AsyncConsumer, observer: Observer) -> PartitionEvents:
        """Set the group member that feeds or leases out these lanes, and its observer. Returns the handler of its
        partition events."""
        self._backlogs.observer = observer
        self.fence.watch(consumer.member_status)
        self._chain.member_id = lambda: consumer.member_id
        return PartitionEvents(self.config, self._interceptors.partitions, self._chain.member_id)

    @property
    def consumers(self) -> Mapping[str, LaneFactory]:
        """Itself: see `GroupLanes`."""
        return {self.config.name: self}

    def on_resume(self) -> None:
        """The process resumes after a stop: no record starts before the fence has checked the membership."""
        self.fence.recheck()

    def act_for(self, member_id: Callable[[], str | None]) -> None:
        """Set the group member on whose behalf this process runs the functions, if that member is elsewhere."""
        self._chain.member_id = member_id

    async def open(self) -> None:
        """After an error it may be called again."""
        self._lifetimes.open()
        if self._audit is not None:
            await self._audit.open()
        self._routes.open()
        if self._processes is not None:
            await self._processes.start(self.registration.function, self.registration.retry or _nothing)

    def report_calls(self) -> None:
        """Report the durations that were measured so far, for an engine whose observer will not wait for them."""
        if self._timer is not None:
            self._timer.report()

    async def close(self) -> None:
        self.report_calls()
        if self._routes.gate is not None:
            self._routes.gate.close()
        self._lifetimes.close()
        if self._processes is not None:
            await self._processes.close()
        try:
            await self.write_audit()  # for records that are settled but no longer ours to commit
        except AuditNotWritten as error:
            log.warning("%s", error)
        if self._audit is not None:
            await self._audit.close()
        await self._routes.close()

    async def write_audit(self) -> None:
        """Write the audit records of everything settled so far. After this it may be committed."""
        if self._audit is not None:
            await self._audit.flush()

    async def try_write_audit(self) -> bool:
        """The same, for a caller that can wait: returns False on an error that may pass."""
        try:
            await self.write_audit()
        except AuditNotWritten as error:
            if not error.retriable:
                raise
            log.warning("consumer %s: %s", self.config.name, error)
            return False
        return True

    # --- processors --------------------------------------------------------------------------------------------------

    def _listen(self, function: Function, runner: Runner) -> Listener:
        signature = self._payloads.bound(read_signature(function))
        return Listener(function, signature, self.registration.window, self._chain, runner, self._timer)

    async def build(
        self, starts: Mapping[TopicPartition, Start], handover: Handover = NO_HANDOVER, notes: Notes | None = None
    ) -> PartitionProcessor:
        """`notes` receive what became of each record, instead of the audit."""
        if notes is None and self._audit is not None:
            notes = self._audit.journal
        parking = await self._parking(starts)
        as_rows = not handover.held and self._waits_as_rows(starts)
        if as_rows:
            await asyncio.to_thread(load_kernels)  # the first use on a machine compiles them: seconds
        ordered = sorted(starts, key=self._feeding_order)
        intakes = [build_intake(self.config, p, starts[p], as_rows=as_rows) for p in ordered]
        threads = Threads(f"multilane-{self.config.name}-{min(p.partition for p in starts)}")
        runner: Runner = self._processes or threads
        listener = self._listen(self.registration.function, runner)
        retry_listener = self._listen(self.registration.retry or self.registration.function, runner)
        is_retry = {p.topic for p in starts} == {self.config.retry}
        chains = build_chains(self.registration, starts, handover.held, self._clock, as_rows=as_rows)
        is_audited = self._audit is not None and notes is self._audit.journal
        lifetime = await self._lifetimes.begin(starts, intakes, threads, is_audited=is_audited, trigger=self.trigger)
        queue = PartitionQueue(intakes, chains, self.registration.route, notes_for(parking, handover))
        work = Work(
            queue,
            retry_listener if is_retry else listener,
            self._routes.failing(self.failures, self._chain, notes, lifetime.watch),
            self._rules(lifetime.watch),
            parking,
            {self.config.retry: retry_listener} if parking is not None and self.config.retry else None,
        )
        work.settling.retried.update(handover.retried)
        lanes = {MAIN: self.config.lanes, **self.config.lane_classes}

        def on_end(interrupted: Sequence[Record]) -> None:
            self._lifetimes.end(processor, lifetime, interrupted)

        processor = PartitionProcessor(queue, work, lanes, self._clock, on_end=on_end)
        self._lifetimes.started(processor, lifetime)
        if self._overrides != AS_CONFIGURED:
            self._apply(processor)
        return processor

    @property
    def processors(self) -> tuple[PartitionProcessor, ...]:
        """Those that have not ended."""
        return self._lifetimes.processors

    @property
    def settled(self) -> int:
        """How many records its processors have settled."""
        return self._lifetimes.settled

    @property
    def received(self) -> int:
        """How many records came to its processors."""
        return self._lifetimes.received

    @property
    def left(self) -> int:
        """How many records came and were not settled when their processors ended."""
        return self._lifetimes.left

    def _rules(self, watch: Watch) -> WorkRules:
        config = self.config
        return WorkRules(
            config.max_processing_time,
            config.ack == "manual",
            retries_in_place=self._routes.retries_in_place or self._payloads.need_registry,
            has_more_lanes_than_threads=self._processes is None and not config.lane_classes,
            watch=watch,
            gate=self._routes.gate or NO_GATE,
            fence=self.fence,
            slow_calls=self._slow_calls,
            results=self._routes.results,
            order_of=order_of(config.order_by, config.lane_hash, config.lanes),
        )

    def apply_overrides(self, overrides: ConsumerOverrides, processors: Iterable[PartitionProcessor]) -> None:
        """Apply them to these processors, and to all that are built from now on."""
        self._overrides = overrides
        for processor in processors:
            self._apply(processor)

    def _apply(self, processor: PartitionProcessor) -> None:
        overrides = self._overrides
        lanes = {MAIN: overrides.lanes or self.config.lanes, **self.config.lane_classes}
        processor.apply_overrides(
            is_paused=overrides.is_paused, lanes=lanes, waiting_per_lane=self.config.waiting_per_lane
        )

    def _waits_as_rows(self, starts: Iterable[TopicPartition]) -> bool:
        """Whether records can wait as rows of a block. A row cannot wait for a retry by itself: all keys of its
        window would wait with it."""
        topics = [partition.topic for partition in starts]
        puts_back = self._routes.puts_back or self._payloads.need_registry
        return not puts_back and self.registration.waits_as_rows(topics)

    def _feeding_order(self, partition: TopicPartition) -> int:
        return self.source.topics.names.index(partition.topic)

    async def look_up_backlogs(self, consumer: LooksUpEnds, partitions: Collection[TopicPartition]) -> None:
        """Before processors of several partitions are built: one request instead of a scan for each."""
        retries = [p for p in partitions if p.topic == self.config.retry]
        if self.source.keeps_order and retries:
            with suppress(MultilaneError):  # then each is scanned when its processor is built
                await self._backlogs.look_up(consumer, retries)

    async def _parking(self, starts: Mapping[TopicPartition, Start]) -> Parking | None:
        if not self.source.keeps_order:
            return None
        retry = next(p for p in starts if p.topic == self.config.retry)
        return await self._backlogs.parking(retry, starts[retry].offset, starts[retry].runs)


def _nothing() -> None:
    """Stands in for a retry function that is not registered."""
