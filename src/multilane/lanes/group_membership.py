"""A member's side of its group: partitions that come and go, and what is committed of them.

Thread: loop; one task, the only user of the consumer.

Every commit interval the places of all teams are committed; when partitions are revoked their teams end what they are
at, within a deadline, and what is settled is committed before the group hears that they are given up. What is lost is
dropped without a commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic

from multilane.client.async_consumer import AsyncConsumer
from multilane.client.rebalance import RebalanceListener
from multilane.clock import Clock
from multilane.commit import completion_map
from multilane.errors import MultilaneError, OperationTimeout, WakeupError
from multilane.lanes.assignment import Assignment, Start, T
from multilane.lanes.first_start import tell_of_skipped
from multilane.lanes.partition_events import NO_EVENTS
from multilane.lanes.uninterrupted import uninterrupted
from multilane.logs import logger
from multilane.types import NO_EPOCH, LeaderEpoch, Offset, OffsetAndMetadata, TopicPartition

log = logger(__name__)

Commits = Mapping[TopicPartition, OffsetAndMetadata]

_FIRST_POSITIONS: Final = 10.0  # seconds, for all partitions without a commit together
_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Timing:
    commit_interval: float = 1.0
    drain: float = 10.0  # for what is in work when partitions are revoked or the app stops


class GroupMembership(RebalanceListener, Generic[T]):
    def __init__(
        self,
        consumer: AsyncConsumer,
        assignment: Assignment[T],
        timing: Timing,
        clock: Clock,
        catch_up: Callable[[TopicPartition], Awaitable[None]] | None = None,
        sift: Callable[[Commits], Awaitable[Commits]] | None = None,
    ) -> None:
        """`catch_up` is called before the place of a partition is looked at; `sift` after that: it gives what may be
        committed."""
        self._consumer = consumer
        self._assignment = assignment
        self._timing = timing
        self._clock = clock
        self._catch_up = catch_up
        self._sift = sift or _all_of_it
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._begun: dict[TopicPartition, OffsetAndMetadata] = {}  # where nothing was committed
        self._commit_at = clock.monotonic() + timing.commit_interval
        self.events = NO_EVENTS  # who hears of partitions

    def join(self) -> None:
        self._consumer.subscribe(self._assignment.topics.names, self)

    async def leave(self) -> None:
        """The last revocation, which closing makes, drains and commits."""
        await self._consumer.close(self._timing.drain + 30.0)
        for processor in self._assignment.processors:  # none, unless the group was lost in the middle
            await processor.drain(self._clock.monotonic())

    # --- commits -----------------------------------------------------------------------------------------------------

    @property
    def until_commit(self) -> float:
        """Seconds."""
        return max(0.0, self._commit_at - self._clock.monotonic())

    async def commit_when_due(self) -> None:
        now = self._clock.monotonic()
        if now < self._commit_at:
            return
        self._commit_at = now + self._timing.commit_interval
        news = await self._news(self._assignment.partitions)
        if news:
            self._consumer.commit_async(news, self._on_committed)

    async def _news(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What has moved since it was last committed, and may be."""
        places = {p: await self._place(p) for p in list(partitions)}
        news = {
            p: place
            for p, place in places.items()
            if place is not None and place.offset >= 0 and self._committed.get(p) != place
        }
        return dict(await self._sift(news)) if news else {}

    async def _place(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        if self._catch_up is not None:
            await self._catch_up(partition)
        processor = self._assignment.processor(partition)
        if processor is None:
            return None
        place, known = processor.commit_point(partition), self._committed.get(partition) or self._begun.get(partition)
        epoch = place.leader_epoch
        if epoch == NO_EPOCH and known is not None and known.offset == place.offset:
            epoch = known.leader_epoch  # where nobody has got on since
        log_mark = completion_map.LogMark(place.end_epoch, self._assignment.topic_id(partition))
        metadata = completion_map.encode(place.offset, place.runs, log_mark)
        return OffsetAndMetadata(Offset(place.offset), LeaderEpoch(epoch), metadata)

    def _on_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: BaseException | None) -> None:
        if error is None:
            self._committed.update(offsets)
        else:
            log.warning("a commit of %d partitions failed and is made again: %s", len(offsets), error)

    async def _commit_now(self, partitions: Collection[TopicPartition]) -> None:
        news = await self._news(partitions)
        if not news:
            return
        try:
            await uninterrupted(lambda: self._consumer.commit(news))
        except MultilaneError as error:
            log.warning("what was settled of %d partitions could not be committed: %s", len(news), error)

    # --- partitions come and go --------------------------------------------------------------------------------------

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        consumer, assignment = self._consumer, self._assignment
        committed = await assignment.retrying(lambda: consumer.committed(partitions)) if partitions else {}
        deadline = self._clock.monotonic() + _FIRST_POSITIONS
        starts: dict[TopicPartition, Start] = {}
        for partition in partitions:
            place = committed.get(partition)
            if place is not None:
                self._committed[partition] = place
                starts[partition] = _start_at(place)
            else:
                starts[partition] = await self._first_start(partition, deadline)
        first = {p: starts[p].offset for p in partitions if committed.get(p) is None}
        await tell_of_skipped(consumer, first, assignment.topics.whole)
        await self.events.came(partitions)
        await assignment.begin(starts)
        alone = [p for p in partitions if assignment.waits(p)]
        if alone:
            consumer.pause(alone)
            await self._tell_of_unmatched(alone)

    async def _tell_of_unmatched(self, alone: Collection[TopicPartition]) -> None:
        """The other half of a pair mostly comes a moment later; one that does not exist never does."""
        with suppress(MultilaneError):  # whoever waits is told by the lag too
            topics = self._assignment.topics.names
            partitions_for = self._consumer.partitions_for
            counts = {topic: len(await uninterrupted(partial(partitions_for, topic))) for topic in topics}
            for topic, many in counts.items():
                unmatched = sorted(p for p in alone if p.partition >= many)
                if unmatched:
                    told = "%s are not read: %s has %d partitions. retryOrder key needs equally many; add partitions"
                    log.error(told, ", ".join(map(str, unmatched)), topic, many)

    async def _first_start(self, partition: TopicPartition, deadline: float) -> Start:
        offset = await self._first_position(partition, deadline)
        if offset == _UNKNOWN:
            return Start(offset)
        epoch = self._consumer.leader_epoch(partition)
        self._begun[partition] = OffsetAndMetadata(Offset(offset), LeaderEpoch(epoch))
        return Start(offset, leader_epoch=epoch)

    async def _first_position(self, partition: TopicPartition, deadline: float) -> int:
        """Nothing is committed: where the reading begins, which is committed then, so that it begins there again."""
        if partition.topic in self._assignment.topics.whole:
            self._consumer.seek_to_beginning([partition])
        while (left := deadline - self._clock.monotonic()) > 0:
            try:
                return await self._consumer.position(partition, left)
            except WakeupError:
                continue  # meant for a poll; the hungry are looked after before the next
            except OperationTimeout:
                break
        return _UNKNOWN  # its first block tells

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        drained = await self._assignment.drain(partitions, self._clock.monotonic() + self._timing.drain)
        await self.events.go(partitions)
        await self._commit_now(drained)
        self._remove(drained, partitions)

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        drained = await self._assignment.drain(partitions, self._clock.monotonic())
        self._remove(drained, partitions)
        await self.events.go(partitions, is_lost=True)

    def _remove(self, drained: Collection[TopicPartition], gone: Collection[TopicPartition]) -> None:
        for partition in drained:
            self._committed.pop(partition, None)
            self._begun.pop(partition, None)
        for partition, start in self._assignment.remove(drained, gone).items():
            self._consumer.seek(partition, start.offset, start.known_epoch)
            self._consumer.pause([partition])


def _start_at(committed: OffsetAndMetadata) -> Start:
    """As it was committed: nothing of it has been held against the log."""
    told = completion_map.read(committed.metadata, committed.offset)
    log_mark = told.log or completion_map.LogMark(NO_EPOCH)
    start = Start(committed.offset, told.runs, log_mark.leader_epoch, committed.leader_epoch)
    return start._replace(topic_id=log_mark.topic_id)


async def _all_of_it(news: Commits) -> Commits:
    return news
