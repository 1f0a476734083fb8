"""An application whose lanes are in Spark's workers, as a member of its groups: the root of what runs beside a driver.

Thread: loop; `stop` from any.

For each consumer there is a member of its group that reads nothing: it hears which partitions it has, puts them on the
board to be lent, and commits what their borrowers have settled. Error consumers run here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
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
from multilane.config.app.clients import admin_properties
from multilane.engines.batches.lease_coordinator import Members
from multilane.engines.batches.lease_table import LeaseTable
from multilane.engines.batches.remote_processor import RemoteProcessor
from multilane.errors import GroupError, MultilaneError, WakeupError
from multilane.lanes.assignment import Assignment, Start, Starts
from multilane.lanes.group_membership import Commits, GroupMembership, Timing
from multilane.lanes.log_check import LogCheck
from multilane.lanes.uninterrupted import uninterrupted
from multilane.logs import logger
from multilane.metrics import News, Observer
from multilane.runtime.lane_factory import LaneFactory
from multilane.runtime.starting import member_of
from multilane.types import Offset, TopicPartition

log = logger(__name__)

_POLL: Final = 0.5
_LOOK: Final = 0.2  # seconds between looks at the ends of logs, while nobody reads them
_LOOK_SELDOM: Final = 0.5  # while somebody does, or brokers do not tell
_LOOK_TIMEOUT: Final = 3.0
_REMOVE_TIMEOUT: Final = 5.0


Ends = dict[TopicPartition, int]


class CoordinatorApp:
    """Made from `module:name`; the driver names this class by its import path."""

    def __init__(self, target: str) -> None:
        self._app = find_app(target)
        self._app.check_runnable()
        self._clock = SystemClock()
        self._news = News()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._is_stopped = False
        self._groups: dict[str, CoordinatorGroup] = {}

    async def keep(self, lease_table: LeaseTable, former: Members = ()) -> None:
        """Until `stop`, or a group fails. `former`: members of its groups that died with the keeper before."""
        self._loop = asyncio.get_running_loop()
        if self._is_stopped:
            return
        lane_factories = self._app.lane_factories(self._news)
        groups = [
            CoordinatorGroup(name, lane_factory, lease_table, self._clock, self._news)
            for name, lane_factory in lane_factories.items()
        ]
        self._groups = dict(zip(lane_factories, groups, strict=True))
        await asyncio.gather(*(self._remove(name, member) for name, member in former if name in lane_factories))
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
        """A member that died would keep its partitions until its session is over."""
        cluster = self._app.config.cluster(self._app.config.consumer(consumer).cluster)
        try:
            with Admin(admin_properties(cluster)) as admin:
                await asyncio.to_thread(admin.remove_member, member, _REMOVE_TIMEOUT)
        except MultilaneError as error:
            told = "consumer %s: cannot remove the dead member from its group; its session has to expire: %s"
            log.info(told, consumer, error)

    def stop(self) -> None:
        """In order; also before it has begun."""
        self._is_stopped = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: it has ended
                self._loop.call_soon_threadsafe(self._stopped.set)

    def counts(self) -> list[tuple[str, dict[str, str], float]]:
        return self._news.take()

    def leases(self) -> dict[str, float]:
        """Each of its own: a group whose brokers are down must not stop the others."""
        return {name: group.lease() for name, group in self._groups.items()}

    def members(self) -> Members:
        return tuple((name, who) for name, group in self._groups.items() if (who := group.identity) is not None)


class CoordinatorGroup:
    """A member of one group."""

    def __init__(
        self, name: str, lane_factory: LaneFactory, lease_table: LeaseTable, clock: Clock, observer: Observer
    ) -> None:
        self._name = name
        self._lane_factory = lane_factory
        self._lease_table = lease_table
        self._clock = clock
        self._observer = observer
        self._assignment: Assignment[RemoteProcessor] = Assignment(
            lane_factory.source.topics, self._build, self._keep_quiet, self._check
        )
        self._stopping = asyncio.Event()
        self._consumer: AsyncConsumer | None = None
        self._topic_ids: dict[str, UUID] = {}
        self._ends: Ends = {}  # of logs, when they were last looked at
        self._refused: dict[TopicPartition, int] = {}  # offsets beyond them

    async def run(self) -> None:
        config = self._lane_factory.config
        consumer = await member_of(self._lane_factory, self._clock, self._observer, self._stopping)
        if consumer is None:
            return
        self._consumer = consumer
        timing = Timing(config.commit_interval, config.rebalance_timeout / 2)
        member = GroupMembership(consumer, self._assignment, timing, self._clock, sift=self._within_logs)
        member.events = self._lane_factory.bind_to(consumer)
        log.info(
            "consumer %s: group %s reads %s",
            self._name,
            config.group_id,
            ", ".join(self._lane_factory.source.topics.names),
        )
        member.join()
        looking = asyncio.create_task(self._look_at_ends())
        try:
            while not self._assignment.is_stopping:
                if looking.done():
                    looking.result()  # nobody else would hear why it ended
                with suppress(WakeupError):
                    await consumer.poll(min(_POLL, member.until_commit))
                await member.commit_when_due()
                await self._begin_new_logs(timing.drain)
        finally:
            looking.cancel()
            await member.leave()

    @property
    def identity(self) -> Identity | None:
        """Who it is in its group, if it is a member."""
        try:
            return None if self._consumer is None else self._consumer.group_metadata().identity
        except GroupError:
            return None

    def stop(self) -> None:
        self._assignment.is_stopping = True
        self._stopping.set()
        if self._consumer is not None:
            self._consumer.wakeup()

    def lease(self) -> float:
        """A borrower who is silent has a drain, and then others get its partitions; at once if we are expelled."""
        left = inf if self._consumer is None else self._consumer.fenced_after - self._clock.monotonic()
        return max(0.0, min(self._lane_factory.config.rebalance_timeout / 2, left))

    async def _build(self, starts: Starts) -> RemoteProcessor:
        self._topic_ids = {}  # of a time when we did not have these
        return self._lease_table.new_processor(self._name, starts)

    async def _check(self, starts: Starts) -> Starts:
        if self._consumer is None:
            raise AssertionError("a team is formed while the group runs")
        return await LogCheck(self._consumer)(starts)

    async def _within_logs(self, news: Commits) -> Commits:
        """Workers say how far they are. What the logs do not have yet, or no more, is not committed on their word."""
        beyond = [p for p, place in news.items() if place.offset > self._ends.get(p, 0)]
        ends: Ends = {}
        if beyond and self._consumer is not None:
            look_up = partial(self._consumer.end_offsets, beyond, _LOOK_TIMEOUT)
            ends, _ = await _known(uninterrupted(look_up))  # the others wait
            self._ends |= ends
        sound = {p: place for p, place in news.items() if place.offset <= self._ends.get(p, 0)}
        for partition in ends.keys() - sound.keys():
            offset = int(news[partition].offset)
            if self._refused.get(partition) != offset:  # once, not with every commit
                self._refused[partition] = offset
                told = "%s: a worker reports offset %d, but the log ends at %d: not committed"
                log.warning(told, partition, offset, ends[partition])
        return sound

    async def _begin_new_logs(self, patience: float) -> None:
        """A topic that was deleted and made again is another log. Borrowers notice when they read; while there is
        nothing to read, or when the new log is as long as the old one was, this does."""
        ids = self._topic_ids
        processors = [processor for processor in self._assignment.processors if processor.note_ids(ids)]
        await asyncio.gather(*(processor.drain(self._clock.monotonic() + patience) for processor in processors))
        told = "%s: the topic was deleted and made again; reading the new one from its beginning"
        for processor in processors:
            topics = processor.note_ids(ids)  # without those of which its borrower has told meanwhile
            for partition in sorted(p for p in processor.partitions if p.topic in topics):
                log.warning(told, partition)
            starts = {
                p: Start(0) if p.topic in topics else self._assignment.start_of(processor, p)
                for p in processor.partitions
            }
            await self._assignment.form(starts)

    def _keep_quiet(self, processor: RemoteProcessor) -> None:
        """Whoever borrows it reads."""
        if self._consumer is not None:
            self._consumer.pause(processor.partitions)

    async def _look_at_ends(self) -> None:
        """The logs may have something new. A consumer of its own: the member's is busy with its group."""
        async with AsyncConsumer(self._lane_factory.source.reader_properties, clock=self._clock) as consumer:
            while True:
                is_known = True
                partitions = list(self._assignment.partitions)
                if partitions:
                    is_known = await self._note_ends(consumer, partitions)
                    await self._note_ids(consumer)
                rest = _LOOK if is_known and not self._lease_table.is_lent else _LOOK_SELDOM
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=rest)

    async def _note_ends(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> bool:
        ends, error = await _known(consumer.end_offsets(partitions, _LOOK_TIMEOUT))
        self._ends = {p: end for p, end in (self._ends | ends).items() if p in partitions}
        self._lease_table.note_ends(self._name, ends)
        if error is None:
            return True
        if not self._lease_table.is_lent:
            log.warning("consumer %s: where its logs end is not known now: %s", self._name, error)
        self._lease_table.note_unknown_ends(self._name, [p for p in partitions if p not in ends])
        return False

    async def _note_ids(self, consumer: AsyncConsumer) -> None:
        found: dict[str, UUID] = {}
        for topic in self._lane_factory.source.topics.names:
            with suppress(MultilaneError):  # one that is deleted has none for a while
                found |= await consumer.topic_ids([topic], _LOOK_TIMEOUT)
        self._topic_ids = found


async def _known(ends: Awaitable[dict[TopicPartition, Offset]]) -> tuple[Ends, MultilaneError | None]:
    """As far as they can be learned: one partition without a leader must not keep the others from being committed."""
    try:
        return dict(await ends), None
    except PartlyFound as error:
        return dict(only_offsets(error.found)), error
    except MultilaneError as error:
        return {}, error
