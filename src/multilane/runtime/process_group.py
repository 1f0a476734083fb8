"""One consumer of the configuration, run in this process: everything it needs, made and wired.

Thread: loop.

A composition root: consumer, publisher, threads or processes, listeners, and a team for each partition (or for a
topic's partition and its retry partition together, where order survives retry). Owns all of it, from `run` to its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from multilane.client.async_consumer import AsyncConsumer
from multilane.client.produce.producer import Producer
from multilane.clock import Clock
from multilane.commit.ledger import Ledger
from multilane.config.app.clients import consumer_properties, producer_properties
from multilane.config.app.cluster import ClusterConfig
from multilane.config.consumer import parse_consumer
from multilane.errors import ConfigError
from multilane.hooks import NO_OBSERVER, Observer
from multilane.lanes.backlog import scan
from multilane.lanes.chains import Chains, DueAt
from multilane.lanes.failing import Failing, Ways
from multilane.lanes.intake import Intake
from multilane.lanes.ordering import order_of
from multilane.lanes.processes import Processes
from multilane.lanes.pump import Pump, Start, Timing, Topics
from multilane.lanes.row_chains import RowChains
from multilane.lanes.team import Team
from multilane.lanes.threads import Threads
from multilane.lanes.work import Work, WorkRules
from multilane.lanes.yard import MAIN, Yard
from multilane.listeners.listener import Listener, Runner
from multilane.listeners.signature import read_signature
from multilane.listeners.surroundings import Surroundings
from multilane.listeners.window import newest_of_each_key
from multilane.outcome import backoff
from multilane.outcome.breaker import Breaker
from multilane.outcome.flow import Flow
from multilane.outcome.headers import retry_count
from multilane.outcome.parking import Parking
from multilane.outcome.publishing import Publisher
from multilane.runtime.registration import Around, Function, Registration
from multilane.types import TopicPartition
from multilane.wire.records.loading import load_kernels
from multilane.wire.records.record import Record

log = logging.getLogger(__name__)

_FETCH_BUFFER: Final = 64 * 1024 * 1024  # lanes have enough with less than a reader of columns
_STRATEGY: Final = "partition.assignment.strategy"
_PARTING: Final = 5.0  # seconds for a producer that has nothing to do any more


class ProcessGroup:
    """Make it inside the running loop; `run` until `stop`."""

    def __init__(
        self,
        registration: Registration,
        cluster: ClusterConfig,
        around: Around,
        clock: Clock,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        self.registration = registration
        self.config = config = registration.config
        self._cluster = cluster
        self._around = around
        self._clock = clock
        self._observer = observer
        self._flow = Flow(
            config.topic,
            config.retry,
            config.error,
            config.retry_count,
            cluster.error.max_error_count if cluster.error is not None else 1,
            keeps_partition=self._keeps_order,
        )
        self._processes = Processes(config.processes) if config.processes else None
        told = config.error_breaker
        self._breaker = None if told is None else Breaker(told.share, told.window, told.minimum)
        self._pump: Pump | None = None
        self._publisher: Publisher | None = None
        self._is_stopping = False

    @property
    def _keeps_order(self) -> bool:
        return self.config.retry_order == "key" and self.config.retry is not None

    @property
    def topics(self) -> tuple[str, ...]:
        """The retry topic first: what waits there belongs before what comes from the topic."""
        return tuple(t for t in (self.config.retry, self.config.topic) if t is not None)

    @property
    def teams(self) -> Sequence[Team]:
        return () if self._pump is None else self._pump.teams

    @property
    def settled(self) -> int:
        """How many records so far."""
        return 0 if self._pump is None else self._pump.settled

    # --- life --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        config, properties = self.config, self._properties()
        self._surroundings = Surroundings(
            config.group_id,
            span=config.tracer or config.group_id,
            interceptors=self._around.interceptors,
            error_interceptors=self._around.error_interceptors,
            tracers=self._around.tracers,
            has_last_step=self._around.last_step is not None,
        )
        producer = producer_properties(self._cluster, durable=True)
        self._publisher = publisher = Publisher(lambda: Producer(producer))
        try:
            if self._processes is not None:
                await self._processes.start(self.registration.function, self.registration.retry or _nothing)
            consumer = AsyncConsumer(properties, clock=self._clock, observer=self._observer)
            if self._keeps_order:
                await self._check_partitions(consumer)
            timing = Timing(config.commit_interval, config.rebalance_timeout / 2)
            # Copies may be stored before this group has a position in the retry topic: none of them may be passed over.
            whole = frozenset(self.topics) - {config.topic}
            topics = Topics(self.topics, pairs=self._keeps_order, whole=whole)
            self._pump = Pump(consumer, topics, self._build, timing, self._clock)
            if self._is_stopping:
                self._pump.stop()
            log.info("consumer %s: group %s reads %s", config.name, config.group_id, ", ".join(self.topics))
            await self._pump.run()
        finally:
            if self._processes is not None:
                self._processes.close()
            await publisher.close(_PARTING)

    def stop(self) -> None:
        """Settle what is in work, commit, and leave the group."""
        self._is_stopping = True
        if self._pump is not None:
            self._pump.stop()

    def _properties(self) -> dict[str, object]:
        made = {"fetch.buffer.bytes": _FETCH_BUFFER} | consumer_properties(self.config, self._cluster)
        group = parse_consumer(made).group
        # Partitions of one number go to one member, where order needs it. Elsewhere too: what brokers choose counts
        # partitions, and may give all of the topic to one member and all of the retries to another.
        if group.group_protocol != "consumer" and self._keeps_order:
            made[_STRATEGY] = "range"
        if group.group_protocol != "classic" and (
            self._keeps_order or (self.config.retry is not None and group.group_remote_assignor is None)
        ):
            made["group.remote.assignor"] = "range"
            if group.group_protocol == "auto":  # one of the two alone would decide the protocol
                made.setdefault(_STRATEGY, ",".join(group.partition_assignment_strategy))
        return made

    async def _check_partitions(self, consumer: AsyncConsumer) -> None:
        try:
            counts = {topic: len(await consumer.partitions_for(topic)) for topic in self.topics}
        except BaseException:
            await consumer.close(0)
            raise
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{topic} has {many}" for topic, many in counts.items())
            await consumer.close(0)
            raise ConfigError(
                f"consumer {self.config.name!r}: retryOrder key keeps a key in the partition of the same number, so a "
                f"topic and its retry topic need equally many of them: {told}. Add partitions, or set retryOrder none"
            )

    # --- teams -------------------------------------------------------------------------------------------------------

    def _listen(self, function: Function, runner: Runner) -> Listener:
        return Listener(function, read_signature(function), self.registration.window, self._surroundings, runner)

    async def _build(self, starts: Mapping[TopicPartition, Start]) -> Team:
        parking = await self._parked(starts)
        as_rows = self.registration.waits_as_rows([partition.topic for partition in starts])
        if as_rows:
            await asyncio.to_thread(load_kernels)  # for the first time on a machine they are compiled: seconds
        intakes = [self._intake(p, starts[p], as_rows) for p in sorted(starts, key=self._feeding_order)]
        threads = Threads(f"multilane-{self.config.name}-{min(p.partition for p in starts)}")
        runner: Runner = self._processes or threads
        listener = self._listen(self.registration.function, runner)
        retrying = self._listen(self.registration.retry or self.registration.function, runner)
        retried = {p.topic for p in starts} == {self.config.retry}
        yard = Yard(intakes, self._chains(starts, as_rows), self.registration.route, _notes_for(parking))
        work = Work(
            yard,
            retrying if retried else listener,
            self._failing(),
            WorkRules(
                self.config.max_processing_time,
                self.config.ack == "manual",
                runs_ahead=self._processes is None and not self.config.lane_classes,
            ),
            parking,
            {self.config.retry: retrying} if parking is not None and self.config.retry else None,
        )
        lanes = {MAIN: self.config.lanes, **self.config.lane_classes}
        return Team(yard, work, lanes, self._clock, on_end=threads.close)

    def _feeding_order(self, partition: TopicPartition) -> int:
        return self.topics.index(partition.topic)

    async def _parked(self, starts: Mapping[TopicPartition, Start]) -> Parking | None:
        if not self._keeps_order:
            return None
        retry = next(p for p in starts if p.topic == self.config.retry)
        properties = {name: value for name, value in self._properties().items() if not name.startswith("group.")}
        return await scan(properties | {"auto.offset.reset": "earliest"}, retry, *starts[retry])

    def _intake(self, partition: TopicPartition, start: Start, as_rows: bool) -> Intake:
        config = self.config
        room = max(1, config.lanes) * config.waiting_per_lane
        return Intake(partition, Ledger(*start, in_bulk=as_rows), room, config.max_in_flight_bytes)

    def _chains(self, starts: Mapping[TopicPartition, Start], as_rows: bool) -> dict[str, Chains] | RowChains:
        config = self.config
        if as_rows:
            [partition] = starts
            is_unique = self.registration.window.select is newest_of_each_key
            return RowChains(partition.topic, partition.partition, config.lanes, newest=is_unique)
        due_at = self._due_at() if any(p.topic == config.retry for p in starts) else None
        lanes = {MAIN: config.lanes, **config.lane_classes}
        return {
            name: Chains(order_of(config.order_by, config.lane_hash, many), max(1, many), due_at)
            for name, many in lanes.items()
        }

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

    def _failing(self) -> Failing:
        if self._publisher is None:
            raise AssertionError("a team is built while the group runs")
        ways = Ways(self._flow, self._publisher, self._around.last_step, self._breaker)
        return Failing(ways, self._surroundings, self._clock, self._observer)


def _nothing() -> None:
    """In the place of a function that is not there."""


def _notes_for(parking: Parking | None) -> Callable[[Sequence[Record]], None] | None:
    if parking is None:
        return None

    def note(records: Sequence[Record]) -> None:
        for record in records:
            if record.topic == parking.retry_topic:
                parking.seen(record.key, record.offset)

    return note
