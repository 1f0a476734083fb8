"""The member side of a group: assigned and revoked partitions, and their commits.

Thread: loop; one task, the only user of the consumer.

Commits the commit points of all processors every commit interval. When partitions are revoked, their processors drain
until a deadline, and the member commits before it acknowledges the revocation. Lost partitions are dropped without a
commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic
from uuid import UUID

from multilane.client.async_consumer import AsyncConsumer
from multilane.client.rebalance import RebalanceListener
from multilane.clock import Clock
from multilane.commit import completion_map
from multilane.errors import MultilaneError, OperationTimeout, WakeupError
from multilane.lanes.assignment import Assignment, Start, T
from multilane.lanes.commit_metadata import CommitMetadata
from multilane.lanes.first_start import warn_of_skipped
from multilane.lanes.kept_starts import KeptStarts
from multilane.lanes.partition_events import NO_EVENTS, PartitionHandler
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
    drain: float = 10.0  # seconds for records in flight when partitions are revoked or the app stops


class GroupMembership(RebalanceListener, Generic[T]):
    def __init__(
        self,
        consumer: AsyncConsumer,
        assignment: Assignment[T],
        timing: Timing,
        clock: Clock,
        catch_up: Callable[[TopicPartition], Awaitable[None]] | None = None,
        committable: Callable[[Commits], Awaitable[Commits]] | None = None,
    ) -> None:
        """`catch_up` is called before the commit point of a partition is read. `committable` returns the commits
        that may be made."""
        self._consumer = consumer
        self._assignment = assignment
        self._timing = timing
        self._clock = clock
        self._catch_up = catch_up
        self._committable = committable or _keep_all
        self._metadata = CommitMetadata(consumer)
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._begun: dict[TopicPartition, OffsetAndMetadata] = {}  # start of partitions without a commit
        self._commit_at = clock.monotonic() + timing.commit_interval
        self.on_committed: Callable[[Commits], object] = lambda commits: None
        self.events: PartitionHandler = NO_EVENTS  # calls the application's partition functions
        self.kept: KeptStarts | None = None  # for the member that takes its place, and of the one before
        self.drain = timing.drain
        self.has_joined = False

    def join(self) -> None:
        self._consumer.subscribe(self._assignment.topics.names, self)

    async def leave(self) -> None:
        """Close the consumer. That revokes all partitions, which drains and commits them."""
        await self._consumer.close(self.drain + 30.0)
        for processor in self._assignment.processors:  # none, unless the group was lost meanwhile
            await processor.drain(self._clock.monotonic())
        self._keep(self._assignment.partitions)

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
        commits = await self._commits(self._assignment.partitions)
        if commits:
            self._consumer.commit_async(commits, self._on_committed)

    async def _commits(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What differs from the last commit, and may be committed."""
        latest = {p: await self._commit_for(p) for p in list(partitions)}
        moved = {p: commit for p, commit in latest.items() if commit is not None and self._committed.get(p) != commit}
        known = {p: commit for p, commit in moved.items() if commit.offset >= 0}
        changed = await self._of_current_logs(known)
        allowed = dict(await self._committable(changed)) if changed else {}
        if self.kept is not None:
            self.kept.note_sent(allowed)
        return allowed

    async def _of_current_logs(self, commits: Commits) -> Commits:
        """A recreated topic has other records: offsets settled in the old one mean nothing there. If the metadata has
        another id than a commit, either may be the older one: ask the brokers."""
        unsure = {p.topic for p, commit in commits.items() if not self._has_known_id(p, commit)}
        if not unsure:
            return commits
        current: dict[str, UUID] = {}
        for topic in sorted(unsure):
            with suppress(MultilaneError):  # a deleted topic has no id for a while
                current |= await uninterrupted(partial(self._consumer.topic_ids, [topic]))
        return {
            p: commit
            for p, commit in commits.items()
            if p.topic not in unsure or current.get(p.topic) == commit.topic_id
        }

    def _has_known_id(self, partition: TopicPartition, commit: OffsetAndMetadata) -> bool:
        return self._consumer.known_topic_id(partition.topic) in (None, commit.topic_id) or commit.topic_id is None

    async def _commit_for(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        if self._catch_up is not None:
            await self._catch_up(partition)
        processor = self._assignment.processor(partition)
        if processor is None:
            return None
        point, known = processor.commit_point(partition), self._committed.get(partition) or self._begun.get(partition)
        epoch = point.leader_epoch
        if epoch == NO_EPOCH and known is not None and known.offset == point.offset:
            epoch = known.leader_epoch  # the offset has not moved since
        log_identity = completion_map.LogIdentity(point.end_epoch, self._assignment.topic_id(partition))
        metadata = self._metadata.text(partition, point, log_identity)
        return OffsetAndMetadata(Offset(point.offset), LeaderEpoch(epoch), metadata, log_identity.topic_id)

    def _on_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: BaseException | None) -> None:
        if error is None:
            self._note_stored(offsets)
        else:
            log.warning("committing %d partitions failed, retrying: %s", len(offsets), error)
            self._metadata.note_refused(error)

    def _note_stored(self, commits: Commits) -> None:
        self._committed.update(commits)
        if self.kept is not None:
            self.kept.note_stored(commits)
        self.on_committed(commits)

    async def _commit_now(self, partitions: Collection[TopicPartition]) -> None:
        commits = await self._commits(partitions)
        if not commits:
            return
        try:
            await uninterrupted(lambda: self._consumer.commit(commits))
            self._note_stored(commits)
        except MultilaneError as error:
            log.warning(
                "cannot commit the settled records of %d partitions; they will be redelivered: %s", len(commits), error
            )

    # --- rebalances --------------------------------------------------------------------------------------------------

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.has_joined = True
        consumer, assignment = self._consumer, self._assignment
        committed = await assignment.retrying(lambda: consumer.committed(partitions)) if partitions else {}
        if partitions:
            await self._metadata.learn()
        deadline = self._clock.monotonic() + _FIRST_POSITIONS
        starts: dict[TopicPartition, Start] = {}
        for partition in partitions:
            commit = committed.get(partition)
            if commit is not None:
                self._committed[partition] = commit
                starts[partition] = _start_at(commit)
            else:
                starts[partition] = await self._first_start(partition, deadline)
        first = {p: starts[p].offset for p in partitions if committed.get(p) is None}
        for partition in partitions:
            kept = self._gone_on(partition)
            if kept is not None:
                starts[partition] = kept
                first.pop(partition, None)
        await warn_of_skipped(consumer, first, assignment.topics.from_beginning)
        await self.events.assigned(partitions)
        await assignment.begin(starts)
        alone = [p for p in partitions if assignment.waits(p)]
        if alone:
            consumer.pause(alone)
            await self._report_unmatched(alone)

    def _gone_on(self, partition: TopicPartition) -> Start | None:
        """Where the member before has left off in this process, if that still holds."""
        kept = None if self.kept is None else self.kept.take(partition, self._committed.get(partition))
        if kept is not None:
            self._consumer.seek(partition, kept.offset, kept.known_epoch)
        return kept

    async def _report_unmatched(self, alone: Collection[TopicPartition]) -> None:
        """The other partition of a pair is usually assigned a moment later, unless it does not exist."""
        with suppress(MultilaneError):  # the lag shows it, too
            topics = {topic for topics in self._assignment.topics.paired for topic in topics}
            partitions_for = self._consumer.partitions_for
            counts = {topic: len(await uninterrupted(partial(partitions_for, topic))) for topic in topics}
            for topic, many in counts.items():
                unmatched = sorted(p for p in alone if p.partition >= many)
                if unmatched:
                    log.error(
                        "%s are not read: %s has %d partitions. retryOrder: key requires equal partition counts; add "
                        "partitions",
                        *(", ".join(map(str, unmatched)), topic, many),
                    )

    async def _first_start(self, partition: TopicPartition, deadline: float) -> Start:
        offset = await self._first_position(partition, deadline)
        if offset == _UNKNOWN:
            return Start(offset)
        epoch = self._consumer.leader_epoch(partition)
        self._begun[partition] = OffsetAndMetadata(Offset(offset), LeaderEpoch(epoch))
        return Start(offset, leader_epoch=epoch)

    async def _first_position(self, partition: TopicPartition, deadline: float) -> int:
        """Where reading begins if nothing is committed. This offset is committed, so that a restart begins there."""
        if partition.topic in self._assignment.topics.from_beginning:
            self._consumer.seek_to_beginning([partition])
        while (left := deadline - self._clock.monotonic()) > 0:
            try:
                return await self._consumer.position(partition, left)
            except WakeupError:
                continue  # meant for a poll: partitions that want blocks are resumed before the next one
            except OperationTimeout:
                break
        return _UNKNOWN  # the first block shows it

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        drained = await self._assignment.drain(partitions, self._clock.monotonic() + self.drain)
        await self.events.revoked(partitions)
        await self._commit_now(drained)
        self._remove(drained, partitions)

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        drained = await self._assignment.drain(partitions, self._clock.monotonic())
        self._remove(drained, partitions)
        await self.events.revoked(partitions, is_lost=True)

    def _keep(self, drained: Iterable[TopicPartition]) -> None:
        for partition in drained:
            processor = self._assignment.processor(partition)
            if processor is not None and self.kept is not None:
                start = self._assignment.start_of(processor, partition)
                self.kept.keep(partition, start, self._committed.get(partition))

    def _remove(self, drained: Collection[TopicPartition], gone: Collection[TopicPartition]) -> None:
        self._keep(drained)
        for partition in drained:
            self._committed.pop(partition, None)
            self._metadata.forget((partition,))
            self._begun.pop(partition, None)
        for partition, start in self._assignment.remove(drained, gone).items():
            self._consumer.seek(partition, start.offset, start.known_epoch)
            self._consumer.pause([partition])


def _start_at(committed: OffsetAndMetadata) -> Start:
    """As committed, not yet compared with the log."""
    completed = completion_map.read(committed.metadata, committed.offset)
    log_identity = completed.log or completion_map.LogIdentity(NO_EPOCH)
    start = Start(committed.offset, completed.runs, log_identity.leader_epoch, committed.leader_epoch)
    return start._replace(topic_id=log_identity.topic_id, positions=completed.positions)


async def _keep_all(commits: Commits) -> Commits:
    return commits
