"""Everything that the lanes of one consumer need, made and wired: listeners, threads or processes, the publisher, and a
team for each partition (or for a topic's partition and its retry partition together, where order survives retry).

Thread: loop.

A composition root. It does not know who feeds the teams, nor who commits what they settle. Owns the publisher and the
processes, from `open` to `close`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from multilane.audit.record_files import AuditRecordFiles
from multilane.client.async_consumer import AsyncConsumer
from multilane.client.produce.producer import Producer
from multilane.clock import Clock
from multilane.commit.journal import Notes
from multilane.commit.ledger import Ledger
from multilane.config.app.clients import consumer_properties, producer_properties
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.consumer import parse_consumer
from multilane.errors import AccountsNotWritten, MultilaneError
from multilane.lanes.assignment import ReadTopics, Start
from multilane.lanes.backlog import Backlogs, LooksUpEnds
from multilane.lanes.chains import Chains, DueAt
from multilane.lanes.consumer_overrides import AS_CONFIGURED, ConsumerOverrides
from multilane.lanes.failing import Failing, FailureRoutes
from multilane.lanes.failure_log import FailureLog, FailureSink
from multilane.lanes.failure_report import FailureReport
from multilane.lanes.fence import Fence
from multilane.lanes.gate import NO_GATE
from multilane.lanes.intake import PIECE, PIECE_OF_ROWS, Intake
from multilane.lanes.ordering import order_of
from multilane.lanes.partition_events import PartitionEvents
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.partition_queue import MAIN, PartitionQueue
from multilane.lanes.processes import Processes
from multilane.lanes.row_chains import RowChains
from multilane.lanes.slow_calls import SlowCalls
from multilane.lanes.threads import Threads
from multilane.lanes.watch import Watch
from multilane.lanes.work import Work
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.listener import Listener, Runner
from multilane.listeners.signature import read_signature
from multilane.listeners.window import newest_of_each_key
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.outcome import backoff
from multilane.outcome.flow import RetryFlow
from multilane.outcome.headers import retry_count
from multilane.outcome.in_place import InPlace
from multilane.outcome.parking import Parking
from multilane.outcome.publishing import Publisher
from multilane.runtime.breakers import breaker_of, gate_of
from multilane.runtime.crash_watch import CrashWatch
from multilane.runtime.handover import NO_HANDOVER, Handover, notes_for
from multilane.runtime.registration import Function, Interceptors, Registration
from multilane.types import TopicPartition
from multilane.wire.records.loading import load_kernels
from multilane.wire.records.record import Record

log = logger(__name__)

_FETCHING: Final = {
    "fetch.buffer.bytes": 64 * 1024 * 1024,  # lanes have enough with less than a reader of columns
    "fetch.pace.ms": 5,  # and calls that take milliseconds need no fetch for each record
}
_STRATEGY: Final = "partition.assignment.strategy"
_PARTING: Final = 5.0  # seconds for a producer that has nothing to do any more


class LaneFactory:
    """Make it inside the running loop."""

    def __init__(
        self,
        registration: Registration,
        cluster: ClusterConfig,
        around: Interceptors,
        clock: Clock,
        observer: Observer = NO_OBSERVER,
        in_place: InPlace | None = None,
    ) -> None:
        """`in_place`: failed records are tried again where they are, and the configuration has no retry topic."""
        self.registration = registration
        self.config = config = registration.config
        self._cluster = cluster
        self._around = around
        self._clock = clock
        self._observer = observer
        self._in_place = in_place
        self._crashes = CrashWatch(clock)
        self._flow = flow_of(config, cluster) if in_place is None else in_place.flow
        self._interceptors = InterceptorChain(
            config.group_id,
            span=config.tracer or config.group_id,
            interceptors=around.consume,
            error_interceptors=around.errors,
            tracers=around.tracers,
            has_last_step=around.last_step is not None,
        )
        self._processes = Processes(config.processes) if config.processes else None
        is_taken = config.error is not None or around.last_step is not None or in_place is not None
        drops = config.on_failure == "drop"
        self._keeping = None if drops or is_taken else config.retry_backoff or backoff.RetryDelay("exponential")
        self._breaker = breaker_of(config)
        self._gate = gate_of(config, clock, observer) if in_place is None else None
        self.fence = Fence(config.name, clock)
        self._slow_calls = SlowCalls()
        self._publisher: Publisher | None = None
        self.failures: FailureSink = FailureLog(clock)  # whoever runs several outfits gives them one of its own
        self._is_open = False
        self._steering = AS_CONFIGURED
        self._accounts = AuditRecordFiles(config.audit, config.group_id, clock) if config.audit else None
        self._properties = _FETCHING | consumer_properties(config, cluster)
        self._backlogs = Backlogs(self.reading | {"auto.offset.reset": "earliest"}, clock)

    def sharing(self, crashes: CrashWatch) -> LaneFactory:
        """With the other consumers of the process, before it is opened."""
        self._crashes = crashes
        return self

    @property
    def _tries_in_place(self) -> bool:
        """Whether a failed record may have to stay where it is."""
        again = self._in_place is not None and self._in_place.retries > 0
        return again or self._keeping is not None or self._gate is not None

    def belong_to(self, consumer: AsyncConsumer) -> PartitionEvents:
        """The member whose lanes these are, or who lends them. Gives who hears of its partitions."""
        self.fence.watch(consumer)
        self._interceptors.member_id = lambda: consumer.member_id
        return PartitionEvents(self.config, self._around.partitions, self._interceptors.member_id)

    async def open(self) -> None:
        self._crashes.open()
        self._is_open = True
        if self._accounts is not None:
            await self._accounts.open()
        producer = producer_properties(self._cluster, durable=True)
        self._publisher = Publisher(lambda: Producer(producer))
        if self._processes is not None:
            await self._processes.start(self.registration.function, self.registration.retry or _nothing)

    async def close(self) -> None:
        if self._gate is not None:
            self._gate.close()
        if self._is_open:
            self._is_open = False
            self._crashes.close()
        if self._processes is not None:
            await self._processes.close()
        try:
            await self.keep_accounts()  # of what was settled and is not ours to commit any more
        except AccountsNotWritten as error:
            log.warning("%s", error)
        if self._accounts is not None:
            await self._accounts.close()
        if self._publisher is not None:
            await self._publisher.close(_PARTING)

    async def keep_accounts(self) -> None:
        """What was settled so far is in the audit's files when this returns: it may be committed."""
        if self._accounts is not None:
            await self._accounts.flush()

    async def accounts_are_kept(self) -> bool:
        """The same for whoever can wait: False while it may pass that they are not."""
        try:
            await self.keep_accounts()
        except AccountsNotWritten as error:
            if not error.retriable:
                raise
            log.warning("consumer %s: %s", self.config.name, error)
            return False
        return True

    # --- what is read ------------------------------------------------------------------------------------------------

    @property
    def keeps_order(self) -> bool:
        """Whether the order of a key survives a retry."""
        return self.config.retry_order == "key" and self.config.retry is not None

    @property
    def topics(self) -> ReadTopics:
        """The retry topic first: what waits there belongs before what comes from the topic. Copies may be stored before
        this group has a position in the retry topic: none of them may be passed over."""
        names = tuple(t for t in (self.config.retry, self.config.topic) if t is not None)
        return ReadTopics(names, pairs=self.keeps_order, whole=frozenset(names) - {self.config.topic})

    @property
    def reading(self) -> dict[str, object]:
        """The properties of a consumer for these topics that is a member of no group."""
        return {name: value for name, value in self._properties.items() if not name.startswith("group.")}

    @property
    def joining(self) -> dict[str, object]:
        """The properties of one that is."""
        made = dict(self._properties)
        group = parse_consumer(made).group
        # Partitions of one number go to one member, where order needs it. Elsewhere too: what brokers choose counts
        # partitions, and may give all of the topic to one member and all of the retries to another.
        if group.group_protocol != "consumer" and self.keeps_order:
            made[_STRATEGY] = "range"
        if group.group_protocol != "classic" and (
            self.keeps_order or (self.config.retry is not None and group.group_remote_assignor is None)
        ):
            made["group.remote.assignor"] = "range"
            if group.group_protocol == "auto":  # one of the two alone would decide the protocol
                made.setdefault(_STRATEGY, ",".join(group.partition_assignment_strategy))
        return made

    # --- teams -------------------------------------------------------------------------------------------------------

    def _listen(self, function: Function, runner: Runner) -> Listener:
        return Listener(function, read_signature(function), self.registration.window, self._interceptors, runner)

    async def build(
        self, starts: Mapping[TopicPartition, Start], remains: Handover = NO_HANDOVER, notes: Notes | None = None
    ) -> PartitionProcessor:
        """`notes` hear what becomes of records, instead of the audit."""
        if notes is None and self._accounts is not None:
            notes = self._accounts.journal
        parking = await self._parked(starts)
        as_rows = not remains.held and self._waits_as_rows(starts)
        if as_rows:
            await asyncio.to_thread(load_kernels)  # for the first time on a machine they are compiled: seconds
        intakes = [self._intake(p, starts[p], as_rows) for p in sorted(starts, key=self._feeding_order)]
        threads = Threads(f"multilane-{self.config.name}-{min(p.partition for p in starts)}")
        runner: Runner = self._processes or threads
        listener = self._listen(self.registration.function, runner)
        retrying = self._listen(self.registration.retry or self.registration.function, runner)
        retried = {p.topic for p in starts} == {self.config.retry}
        chains = self._chains(starts, remains.held, as_rows=as_rows)
        brokers, limit = str(self._cluster.brokers), self.config.crash_limit
        begun = {intake: starts[intake.partition] for intake in intakes}
        watch = await self._crashes.over(brokers, self.config.group_id, limit, begun)
        queue = PartitionQueue(intakes, chains, self.registration.route, notes_for(parking, remains))
        work = Work(
            queue,
            retrying if retried else listener,
            self._failing(notes),
            self._rules(watch),
            parking,
            {self.config.retry: retrying} if parking is not None and self.config.retry else None,
        )
        work.retried.update(remains.tried)
        tenure = None
        if self._accounts is not None and notes is self._accounts.journal:
            topic_ids = {p: start.topic_id for p, start in starts.items()}
            tenure = await self._accounts.begin({intake.partition: intake for intake in intakes}, topic_ids)
        lanes = {MAIN: self.config.lanes, **self.config.lane_classes}

        def on_end(given_up: Sequence[Record]) -> None:
            threads.close()
            self._crashes.end(intakes)
            if self._gate is not None:
                self._gate.count_out(queue)
            if self._accounts is not None and tenure is not None:
                self._accounts.end(tenure, given_up)

        processor = PartitionProcessor(queue, work, lanes, self._clock, on_end=on_end)
        if self._gate is not None:
            self._gate.count_in(queue)
        if tenure is not None:
            tenure.on_allowed = processor.feed
        if self._steering != AS_CONFIGURED:
            self._apply(processor)
        return processor

    def _rules(self, watch: Watch) -> WorkRules:
        config = self.config
        return WorkRules(
            config.max_processing_time,
            config.ack == "manual",
            retries_in_place=self._tries_in_place,
            runs_ahead=self._processes is None and not config.lane_classes,
            watch=watch,
            gate=self._gate or NO_GATE,
            fence=self.fence,
            slow_calls=self._slow_calls,
            order_of=order_of(config.order_by, config.lane_hash, config.lanes),
        )

    def steer(self, steering: ConsumerOverrides, processors: Iterable[PartitionProcessor]) -> None:
        """These, and all that are built from now on."""
        self._steering = steering
        for processor in processors:
            self._apply(processor)

    def _apply(self, processor: PartitionProcessor) -> None:
        told = self._steering
        lanes = {MAIN: told.lanes or self.config.lanes, **self.config.lane_classes}
        processor.apply_overrides(is_paused=told.is_paused, lanes=lanes, waiting_per_lane=self.config.waiting_per_lane)

    def _waits_as_rows(self, starts: Iterable[TopicPartition]) -> bool:
        """Rows cannot be put back: a lane would rest with all keys of its window for the sake of one."""
        stays = self._keeping is not None or (self._in_place is not None and self._in_place.waits)
        stays = stays or (self._gate is not None and self.config.ack == "manual")
        return not stays and self.registration.waits_as_rows([partition.topic for partition in starts])

    def _feeding_order(self, partition: TopicPartition) -> int:
        return self.topics.names.index(partition.topic)

    async def look_up_backlogs(self, consumer: LooksUpEnds, partitions: Collection[TopicPartition]) -> None:
        """Before teams of several partitions are built: one request instead of a scan for each."""
        retries = [p for p in partitions if p.topic == self.config.retry]
        if self.keeps_order and retries:
            with suppress(MultilaneError):  # then each is scanned, by whoever waits for it
                await self._backlogs.look_up(consumer, retries)

    async def _parked(self, starts: Mapping[TopicPartition, Start]) -> Parking | None:
        if not self.keeps_order:
            return None
        retry = next(p for p in starts if p.topic == self.config.retry)
        return await self._backlogs.parking(retry, starts[retry].offset, starts[retry].runs)

    def _intake(self, partition: TopicPartition, start: Start, as_rows: bool) -> Intake:
        config = self.config
        room = max(1, config.lanes) * config.waiting_per_lane
        most = PIECE_OF_ROWS if as_rows else PIECE
        return Intake(
            partition,
            Ledger(start.offset, start.runs, start.end_epoch, start.leader_epoch, in_bulk=as_rows),
            room,
            config.max_in_flight_bytes,
            most=most,
        )

    def _chains(
        self, starts: Mapping[TopicPartition, Start], held: Sequence[bytes | None], *, as_rows: bool
    ) -> dict[str, Chains] | RowChains:
        config = self.config
        if as_rows:
            [partition] = starts
            is_unique = self.registration.window.select is newest_of_each_key
            return RowChains(partition.topic, partition.partition, config.lanes, newest=is_unique)
        due_at = self._due_at() if any(p.topic == config.retry for p in starts) else None
        lanes = {MAIN: config.lanes, **config.lane_classes}
        chains = {
            name: Chains(order_of(config.order_by, config.lane_hash, many), max(1, many), due_at)
            for name, many in lanes.items()
        }
        for one in chains.values():
            one.hold([Record(config.topic, 0, 0, 0, 0, key, None) for key in held])
        return chains

    def _due_at(self) -> DueAt | None:
        """When a retry copy may be handled, on the monotonic clock."""
        wait, retry, clock = self.config.retry_backoff, self.config.retry, self._clock
        if wait is None:
            return None

        def due_at(record: Record) -> float:
            if record.topic != retry:
                return 0.0
            seed = backoff.seed_of(record.topic, record.partition, record.offset)
            due = backoff.due(wait, record.timestamp, retry_count(record.headers), seed)
            now = clock.wall()
            return clock.monotonic() + backoff.bounded(wait, due, round(now * 1_000)) / 1_000 - now

        return due_at

    def _failing(self, notes: Notes | None) -> Failing:
        if self._publisher is None:
            raise AssertionError("a team is built while the group runs")
        report = FailureReport(self.config.name, self.failures, self._observer)
        places = (self._around.last_step, self._breaker, self._in_place, self._keeping, self._gate)
        routes = FailureRoutes(self._flow, self._publisher, *places, report=report)
        return Failing(routes, self._interceptors, self._clock, self._observer, notes)


def flow_of(config: ConsumerGroupConfig, cluster: ClusterConfig) -> RetryFlow:
    return RetryFlow(
        config.topic,
        config.retry,
        config.error,
        config.retry_count,
        cluster.error.max_error_count if cluster.error is not None else 1,
        keeps_partition=config.retry_order == "key" and config.retry is not None,
        with_stack=config.error_stack,
    )


def _nothing() -> None:
    """In the place of a function that is not there."""
