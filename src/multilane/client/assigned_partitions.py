"""The assigned partitions of one consumer, as its application sees them.

Thread: application (the thread or task that uses the consumer, one at a time).

Owns the table: which partitions are assigned, the position after the last record handed out, which are paused, which
have failed, and the generation that tells the fetches of a seek from those before it. Announces each change to the
fetch buffer and to the network thread. Never waits, and never takes a block from the buffer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING

from multilane.client.arguments import checked_partition, partition_list
from multilane.client.events import ApplicationEvent, Assign, Seek, SetPaused
from multilane.client.fetch.buffer import Failed, FetchBuffer, Moved
from multilane.client.fetch.cursor import At, AtCommitted, Lookup, StartPosition
from multilane.client.fetch.reset import ResetRule
from multilane.client.partition_state import PartitionState
from multilane.errors import MultilaneError, NoOffsetForPartition, NotAssigned
from multilane.types import NO_EPOCH, LeaderEpoch, Offset, OffsetAndMetadata, PartitionLike, TopicPartition

if TYPE_CHECKING:
    from multilane.config.consumer import ConsumerConfig
    from multilane.wire.records.block import Block


class AssignedPartitions(ABC):
    """The base class of `ConsumerState`: a loop over records reaches a position without a call from one object to
    another."""

    def __init__(self, config: ConsumerConfig, buffer: FetchBuffer, wall: Callable[[], float]) -> None:
        self.config = config
        self.polls = 0
        self._buffer = buffer
        self._reset = ResetRule(config.auto_offset_reset, wall)
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._withheld: frozenset[TopicPartition] = frozenset()  # revoked once their commit is done
        self._generations = count(1)

    @abstractmethod
    def _send(self, event: ApplicationEvent) -> None:
        """Send it to the network thread."""

    # --- assignment --------------------------------------------------------------------------------------------------

    @property
    def states(self) -> Mapping[TopicPartition, PartitionState]:
        return self._partitions

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._partitions)

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        wanted = partition_list(partitions)
        self._partitions = {p: self._partitions.get(p) or self._new(p) for p in wanted}
        self._publish()

    def add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Add the partitions that the group assigned."""
        self._partitions.update({p: self._new(p) for p in partitions})
        self._publish()

    def withhold(self, partitions: frozenset[TopicPartition]) -> None:
        """Hand out nothing of these, but still own them until they are committed and revoked."""
        self._withheld |= partitions

    def remove_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Drop these partitions; nothing of them is handed out from now on."""
        self._withheld -= frozenset(partitions)
        self._partitions = {p: s for p, s in self._partitions.items() if p not in partitions}
        self._publish()

    def _new(self, partition: TopicPartition) -> PartitionState:
        start = AtCommitted() if self.config.group_id is not None else self._reset.lookup("no position was given")
        state = PartitionState(next(self._generations), start)
        if state.start is None:
            state.failure = NoOffsetForPartition(
                f"{partition} has no position: seek first, or set auto.offset.reset to earliest, latest or "
                "by_duration:..."
            )
        return state

    def _publish(self) -> None:
        """Partitions without a start are not fetched: the network thread does not learn of their generation."""
        placed = {p: s for p, s in self._partitions.items() if s.start is not None}
        self._buffer.expect({p: s.generation for p, s in placed.items()})
        self._send(Assign({p: (s.generation, s.start) for p, s in placed.items() if s.start is not None}))
        paused = frozenset(p for p, s in placed.items() if s.paused)
        if paused:
            self._send(SetPaused(paused, True))

    # --- positions ---------------------------------------------------------------------------------------------------

    def seek(self, partition: PartitionLike, start: StartPosition) -> None:
        partition = checked_partition(partition)
        state = self._state(partition)
        was_placed = state.start is not None
        state.generation = next(self._generations)
        state.start = start
        state.position = start.offset if isinstance(start, At) else None
        state.epoch = start.epoch if isinstance(start, At) else NO_EPOCH
        state.topic_id = start.topic_id if isinstance(start, At) else None
        state.failure, state.failure_raised = None, False
        if not was_placed:
            self._publish()
            return
        self._buffer.expect({p: s.generation for p, s in self._partitions.items() if s.start is not None})
        self._send(Seek(partition, state.generation, start))

    def seek_lookup(self, partitions: Collection[PartitionLike], timestamp: int) -> None:
        """Seek these partitions, or all assigned ones, to the beginning or the end."""
        states = partition_list(partitions) or list(self._partitions)
        for partition in states:
            self._state(partition)
        for partition in states:
            self.seek(partition, Lookup(timestamp, "seek"))

    def position(self, partition: PartitionLike) -> Offset | None:
        """The offset of the next record that poll() returns; None during the lookup."""
        state = self._state(partition)
        if state.failure is not None and state.position is None:
            raise state.failure
        return state.position

    def leader_epoch(self, partition: PartitionLike) -> LeaderEpoch:
        return self._state(partition).epoch

    def consumed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The position to commit for each of these partitions."""
        offsets = {p: self._partitions[p].to_commit() for p in partitions if p in self._partitions}
        return {p: offset for p, offset in offsets.items() if offset is not None}

    def consumed_before_last_poll(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The same, without the rows of the last poll."""
        states = {p: self._partitions[p] for p in partitions if p in self._partitions}
        offsets = {p: s.before if s.moved_in == self.polls else s.to_commit() for p, s in states.items()}
        return {p: offset for p, offset in offsets.items() if offset is not None}

    def lag(self, partition: PartitionLike) -> int | None:
        state = self._state(partition)
        return None if state.end is None or state.position is None else max(0, state.end - state.position)

    def set_paused(self, partitions: Iterable[PartitionLike], paused: bool) -> None:
        states = [(p, self._state(p)) for p in partition_list(partitions)]
        for _, state in states:
            state.paused = paused
        self._send(SetPaused(frozenset(p for p, _ in states), paused))

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(p for p, s in self._partitions.items() if s.paused)

    # --- failures, and what was fetched -------------------------------------------------------------------------------

    def failures(self) -> Mapping[TopicPartition, MultilaneError]:
        return {p: s.failure for p, s in self._partitions.items() if s.failure is not None}

    def _note(self, item: Block | Moved | Failed) -> Block | None:
        if isinstance(item, Failed):
            state = self._partitions.get(item.partition)
            if state is not None:
                state.failure, state.failure_raised = item.error, False
            return None
        if isinstance(item, Moved):
            state = self._partitions.get(item.partition)
            if state is not None:
                state.reset_to(item.offset, item.epoch, self.polls, item.topic_id)
            return None
        state = self._partitions.get(TopicPartition(item.topic, item.partition))
        if state is not None:
            state.advance(Offset(item.next_offset), LeaderEpoch(item.leader_epoch), self.polls)
            state.end = item.last_stable_offset if self.config.read_committed else item.high_watermark
        return item

    def _raise_new_failure(self) -> None:
        for state in self._partitions.values():
            if state.failure is not None and not state.failure_raised and not state.paused:
                state.failure_raised = True
                raise state.failure.with_traceback(None)

    def raise_current_failure(self) -> None:
        """A stopped partition stays stopped: every poll that would return nothing raises its failure again."""
        for state in self._partitions.values():
            if state.failure is not None and not state.paused:
                raise state.failure.with_traceback(None)

    def _state(self, partition: PartitionLike) -> PartitionState:
        state = self._partitions.get(checked_partition(partition))
        if state is None:
            raise NotAssigned(f"{TopicPartition(*partition)} is not assigned to this consumer: assign it first")
        return state
