"""An application whose lanes run in Spark workers, as a member of its groups: the composition root of the coordinator.

Thread: loop; `stop` from any.

Each consumer, or the triggers that share one, has a member of its group that fetches nothing. It gets partitions
assigned, adds them to the lease table, and commits what workers have settled. Error consumers run here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final
from uuid import UUID

from multilane.app.targets import find_app
from multilane.client.admin.admin import Admin
from multilane.client.async_consumer import AsyncConsumer
from multilane.client.fetch.offsets import PartlyFound
from multilane.client.group.membership import Identity
from multilane.client.lookups import only_offsets
from multilane.clock import Clock, SystemClock
from multilane.commit import completion_map
from multilane.config.app.clients import admin_properties
from multilane.engines.batches.lease_coordinator import Members
from multilane.engines.batches.lease_table import LeaseTable
from multilane.engines.batches.remote_processor import RemoteProcessor
from multilane.engines.batches.remote_triggers import RemoteTriggers
from multilane.errors import GroupError, MultilaneError, WakeupError
from multilane.lanes.assignment import Assignment, Start, Starts
from multilane.lanes.group_membership import Commits, GroupMembership, Timing
from multilane.lanes.log_check import LogCheck
from multilane.lanes.uninterrupted import uninterrupted
from multilane.logs import logger
from multilane.metrics.observer import Count, Duration, Gauge, Observer, ReportBuffer
from multilane.runtime.beside_member import beside_member
from multilane.runtime.gauges import group_gauges, unit_gauges
from multilane.runtime.group_lanes import GroupLanes
from multilane.runtime.shared_lanes import SharedLanes, grouped
from multilane.runtime.starting import member_of
from multilane.types import Offset, OffsetAndMetadata, TopicPartition

log = logger(__name__)

_POLL: Final = 0.5
_LOOKUP_EVERY: Final = 0.2  # seconds between lookups of the ends of logs, while no worker reads them
_LOOKUP_SELDOM: Final = 0.5  # while workers read them, or brokers do not return them
_LOOKUP_TIMEOUT: Final = 3.0
_REMOVE_TIMEOUT: Final = 5.0


Ends = dict[TopicPartition, int]
Remote = RemoteProcessor | RemoteTriggers


class CoordinatorApp:
    """Made from `module:name`; the driver names this class by its import path."""

    def __init__(self, target: str) -> None:
        self._app = find_app(target)
        self._app.check_runnable()
        self._clock = SystemClock()
        self._news = ReportBuffer()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._is_stopped = False
        self._groups: list[CoordinatorGroup] = []

    async def run(self, lease_table: LeaseTable, former: Members = ()) -> None:
        """Until `stop`, or a group fails. `former`: members of its groups that died with the last coordinator."""
        self._loop = asyncio.get_running_loop()
        if self._is_stopped:
            return
        lane_factories = self._app.lane_factories(self._news)
        members = grouped(lane_factories, self._app.config, self._clock)
        self._groups = groups = [CoordinatorGroup(m, lease_table, self._clock, self._news) for m in members]
        dead = {member: name for name, member in former if name in lane_factories}  # triggers share theirs
        await asyncio.gather(*(self._remove(name, member) for member, name in dead.items()))
        tasks = [asyncio.create_task(group.run()) for group in groups]
        errors = self._app.error_consumers(self._news)
        waiting = asyncio.create_task(self._stopped.wait())
        try:
            await errors.start()
            await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            for group in groups:
                group.stop()
            await errors.stop()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            await self._app.close_producers()
        for failure in ended:
            if isinstance(failure, BaseException):
                raise failure

    async def _remove(self, consumer: str, member: Identity) -> None:
        """Without this, a member that died would keep its partitions until its session expires."""
        cluster = self._app.config.cluster(self._app.config.consumer(consumer).cluster)
        try:
            with Admin(admin_properties(cluster)) as admin:
                await asyncio.to_thread(admin.remove_member, member, _REMOVE_TIMEOUT)
        except MultilaneError as error:
            text = "consumer %s: cannot remove the dead member from its group; it stays until its session expires: %s"
            log.info(text, consumer, error)

    def stop(self) -> None:
        """In order; also before `run`."""
        self._is_stopped = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: it has ended
                self._loop.call_soon_threadsafe(self._stopped.set)

    def counts(self) -> list[Count | Duration]:
        return self._news.take()

    def gauges(self) -> list[Gauge]:
        return [gauge for group in self._groups for gauge in group.gauges()]

    def lease_seconds(self) -> dict[str, float]:
        """By consumer: a group whose brokers are down must not stop the others."""
        return {name: group.lease_seconds() for group in self._groups for name in group.consumers}

    def members(self) -> Members:
        known = ((name, group.identity) for group in self._groups for name in group.consumers)
        return tuple((name, identity) for name, identity in known if identity is not None)


class CoordinatorGroup:
    """A member of one group."""

    def __init__(self, lanes: GroupLanes, lease_table: LeaseTable, clock: Clock, observer: Observer) -> None:
        self._name = lanes.config.name
        self._lanes = lanes
        self._lease_table = lease_table
        self._clock = clock
        self._observer = observer
        self._assignment: Assignment[Remote] = Assignment(lanes.source.topics, self._build, self._pause, self._check)
        self._stopping = asyncio.Event()
        self._consumer: AsyncConsumer | None = None
        self._topic_ids: dict[str, UUID] = {}
        self._ends: Ends = {}  # of logs, at the last lookup
        self._refused: dict[TopicPartition, int] = {}  # offsets beyond them

    async def run(self) -> None:
        config = self._lanes.config
        consumer = await member_of(self._lanes, self._clock, self._observer, self._stopping)
        if consumer is None:
            return
        self._consumer = consumer
        timing = Timing(config.commit_interval, config.rebalance_timeout / 2)
        member = GroupMembership(consumer, self._assignment, timing, self._clock, committable=self._within_logs)
        member.events = self._lanes.bind_to(consumer, self._observer)
        log.info(
            "consumer %s: group %s reads %s",
            self._name,
            config.group_id,
            ", ".join(self._lanes.source.topics.names),
        )
        on_committed = partial(setattr, member, "on_committed")
        async with beside_member(self._lanes, consumer, on_committed, self._clock, self._observer):
            await self._take_part(consumer, member, timing.drain)

    async def _take_part(self, consumer: AsyncConsumer, member: GroupMembership[Remote], drain: float) -> None:
        member.join()
        watching = asyncio.create_task(self._watch_ends())
        try:
            while not self._assignment.is_stopping:
                if watching.done():
                    watching.result()  # raises the reason why it ended
                with suppress(WakeupError):
                    await consumer.poll(min(_POLL, member.until_commit))
                await member.commit_when_due()
                await self._begin_new_logs(drain)
        finally:
            watching.cancel()
            await member.leave()

    @property
    def consumers(self) -> Collection[str]:
        return self._lanes.consumers.keys()

    @property
    def identity(self) -> Identity | None:
        """Its identity in the group, if it is a member."""
        try:
            return None if self._consumer is None else self._consumer.group_metadata().identity
        except GroupError:
            return None

    def gauges(self) -> list[Gauge]:
        if self._consumer is None:
            return []
        lags: dict[str, dict[TopicPartition, int | None]] = {name: {} for name in self.consumers}
        for processor in (leased for each in self._assignment.processors for leased in each.leased):
            for partition in processor.partitions:
                end = self._ends.get(partition)
                known = None if end is None else end - processor.commit_point(partition).offset
                lags[processor.consumer][partition] = known
        gauges = [gauge for name, own in lags.items() for gauge in group_gauges(name, self._consumer, own)]
        topics = self._lanes.source.topics
        return gauges + unit_gauges(self._lanes.config.group_id, lags, topics.from_beginning)

    def stop(self) -> None:
        self._assignment.is_stopping = True
        self._stopping.set()
        if self._consumer is not None:
            self._consumer.wakeup()

    def lease_seconds(self) -> float:
        """A silent worker has the time of a drain until its partitions may go to another member; none if the group may
        have expelled us."""
        left = inf if self._consumer is None else self._consumer.fenced_after - self._clock.monotonic()
        return max(0.0, min(self._lanes.config.rebalance_timeout / 2, left))

    async def _build(self, starts: Starts) -> Remote:
        self._topic_ids = {}  # looked up before these partitions were assigned
        lanes, lease_table = self._lanes, self._lease_table
        if not isinstance(lanes, SharedLanes):
            return lease_table.new_processor(self._name, starts)
        partition = lanes.shared(starts)
        if partition is None:
            [processor] = lease_table.new_processors(self._name, {lanes.owner(starts): starts})
            return processor
        here = lanes.begin(partition, starts[partition])
        processors = lease_table.new_processors(
            self._name, {name: await lanes.starts_of(name, partition, starts) for name in here}
        )
        commit = lanes.joint_commit(partition, starts[partition], here)
        return RemoteTriggers(partition, dict(zip(here, processors, strict=True)), commit)

    async def _check(self, starts: Starts) -> Starts:
        if self._consumer is None:
            raise AssertionError("a processor is built while the group runs")
        return await LogCheck(self._consumer)(starts)

    async def _within_logs(self, commits: Commits) -> Commits:
        """Drops what a worker reported beyond the end of a log, offset or runs: it is not committed."""
        wanted = {p: _end_of(commit) for p, commit in commits.items()}
        beyond = [p for p, end in wanted.items() if end > self._ends.get(p, 0)]
        ends: Ends = {}
        if beyond and self._consumer is not None:
            look_up = partial(self._consumer.end_offsets, beyond, _LOOKUP_TIMEOUT)
            ends, _ = await _known(uninterrupted(look_up))  # partitions without an answer wait
            self._ends |= ends
        sound = {p: commit for p, commit in commits.items() if wanted[p] <= self._ends.get(p, 0)}
        for partition in ends.keys() - sound.keys():
            offset = wanted[partition]
            if self._refused.get(partition) != offset:  # warn once, not at each commit
                self._refused[partition] = offset
                text = "%s: a worker reports offset %d, but the log ends at %d: not committed"
                log.warning(text, partition, offset, ends[partition])
        return sound

    async def _begin_new_logs(self, patience: float) -> None:
        """A topic that was deleted and created again is another log. Workers notice that when they read. While there is
        nothing to read, or when the new log is as long as the old one was, this method does."""
        ids = self._topic_ids
        processors = [processor for processor in self._assignment.processors if processor.note_ids(ids)]
        await asyncio.gather(*(processor.drain(self._clock.monotonic() + patience) for processor in processors))
        text = "%s: the topic was deleted and created again; reading the new one from its beginning"
        for processor in processors:
            topics = processor.note_ids(ids)  # without those that its worker has reported meanwhile
            for partition in sorted(p for p in processor.partitions if p.topic in topics):
                log.warning(text, partition)
            starts = {p: self._assignment.start_of(processor, p) for p in processor.partitions}
            starts |= {p: start.of_new_log() for p, start in starts.items() if p.topic in topics}
            await self._assignment.form(starts)

    def _pause(self, processor: Remote) -> None:
        """Workers fetch its records, the member does not."""
        if self._consumer is not None:
            self._consumer.pause(processor.partitions)

    async def _watch_ends(self) -> None:
        """Notice new records in the logs. Uses a consumer of its own: the member's is busy with its group."""
        async with AsyncConsumer(
            self._lanes.source.reader_properties, clock=self._clock, observer=self._observer
        ) as consumer:
            while True:
                is_known = True
                partitions = list(self._assignment.partitions)
                if partitions:
                    is_known = await self._note_ends(consumer, partitions)
                    await self._note_ids(consumer)
                pause = _LOOKUP_EVERY if is_known and not self._lease_table.is_leased else _LOOKUP_SELDOM
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=pause)

    async def _note_ends(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> bool:
        ends, error = await _known(consumer.end_offsets(partitions, _LOOKUP_TIMEOUT))
        self._ends = {p: end for p, end in (self._ends | ends).items() if p in partitions}
        self._lease_table.note_ends(self._name, ends)
        if error is None:
            return True
        if not self._lease_table.is_leased:
            log.warning("consumer %s: cannot look up the ends of its logs now: %s", self._name, error)
        self._lease_table.note_unknown_ends(self._name, [p for p in partitions if p not in ends])
        return False

    async def _note_ids(self, consumer: AsyncConsumer) -> None:
        found: dict[str, UUID] = {}
        for topic in self._lanes.source.topics.names:
            with suppress(MultilaneError):  # a deleted topic has none for a while
                found |= await consumer.topic_ids([topic], _LOOKUP_TIMEOUT)
        self._topic_ids = found


def _end_of(commit: OffsetAndMetadata) -> int:
    """The offset after the last one that the commit declares settled, for any trigger."""
    read = completion_map.read(commit.metadata, commit.offset)
    return Start(commit.offset, tuple(read.runs), positions=read.positions).claimed_end


async def _known(ends: Awaitable[dict[TopicPartition, Offset]]) -> tuple[Ends, MultilaneError | None]:
    """The ends that brokers return: one partition without a leader must not keep the others from being committed."""
    try:
        return dict(await ends), None
    except PartlyFound as error:
        return dict(only_offsets(error.found)), error
    except MultilaneError as error:
        return {}, error
