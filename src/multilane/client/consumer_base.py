"""The consumer calls that never wait, shared by `Consumer` and `AsyncConsumer`.

Thread: application, one at a time; `wakeup` from any.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias
from uuid import UUID

from multilane.client.arguments import at_offset, at_time, by_partition, checked_callback
from multilane.client.consumer_state import ConsumerState
from multilane.client.group.membership import MemberStatus
from multilane.client.group.metadata import GroupMetadata
from multilane.client.group.wanted_topics import ClientPattern, ServerPattern, TopicNames
from multilane.client.offset_commits import CommitCallback
from multilane.client.rebalance import RebalanceListener
from multilane.client.subscriber import Subscriber
from multilane.errors import GroupError, MultilaneError
from multilane.types import OffsetAndMetadata, PartitionLike, TopicPartition
from multilane.wire.compose import EARLIEST, LATEST

# Mapping keys are invariant to mypy: a mapping with tuples is not one with partitions, though tuples are accepted.
OffsetsLike: TypeAlias = (
    Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | OffsetAndMetadata]
)


class ConsumerBase:
    _state: ConsumerState
    _subscriber: Subscriber

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._state}>"

    # --- assignment --------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        """Read exactly these partitions from now on. Partitions that stay assigned keep their position."""
        with self._state.used() as state:
            wanted = tuple(partitions)
            self._subscriber.before_assigning()
            state.assign(wanted)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._state.assignment

    def pause(self, partitions: Iterable[PartitionLike]) -> None:
        """Return no records of these partitions until they are resumed."""
        with self._state.used() as state:
            state.set_paused(partitions, True)

    def resume(self, partitions: Iterable[PartitionLike]) -> None:
        with self._state.used() as state:
            state.set_paused(partitions, False)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._state.paused

    @property
    def stopped(self) -> Mapping[TopicPartition, MultilaneError]:
        """Stopped partitions, each with its failure. A seek resumes a stopped partition."""
        return self._state.failures()

    # --- the group ---------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] | ServerPattern,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share these topics with the other members of the group. Replaces the previous subscription.

        The client matches a compiled pattern against whole topic names; the broker matches a `ServerPattern` (RE2J).
        poll() calls the listener when partitions are assigned, revoked or lost.
        """
        with self._state.used():
            self._subscriber.subscribe(topics, listener)

    @property
    def subscription(self) -> frozenset[str] | re.Pattern[str] | ServerPattern | None:
        """The subscribed topics or pattern; None without a subscription."""
        match self._subscriber.subscription:
            case TopicNames(topics):
                return topics
            case ClientPattern(pattern):
                return pattern
            case other:
                return other

    def commit_async(
        self,
        offsets: OffsetsLike | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting. A later poll() calls `callback(offsets, error)`. Without a callback, errors are
        logged."""
        with self._state.used():
            self._subscriber.commits.commit_async(offsets, checked_callback(callback))

    @property
    def member_id(self) -> str | None:
        """The group's id of this member; None while this consumer is not a member. Callable from any thread."""
        identity = self._state.member_status.identity
        return None if identity is None else identity.member_id

    @property
    def member_status(self) -> MemberStatus:
        """This consumer's membership, for lanes that look at its deadline before each record."""
        return self._state.member_status

    @property
    def fenced_after(self) -> float:
        """The time at which this member must assume that its group has fenced it, unless a heartbeat succeeds before.
        In the clock's monotonic time; infinite without a group. Callable from any thread."""
        return self._state.member_status.fenced_after

    def group_metadata(self) -> GroupMetadata:
        """This consumer's current group metadata, for confluent-kafka's `send_offsets_to_transaction`."""
        identity = self._subscriber.identity
        if identity is None:
            raise GroupError("this consumer is not a member of a group: call subscribe() and poll() first")
        return GroupMetadata(identity)

    def enforce_rebalance(self, reason: str = "the application asks for it") -> None:
        """Make the group assign its partitions again. Under KIP-848 the broker does that on its own."""
        with self._state.used():
            self._subscriber.enforce_rebalance(reason)

    # --- positions ---------------------------------------------------------------------------------------------------

    def seek(
        self,
        partition: PartitionLike,
        offset: int,
        leader_epoch: int | None = None,
        topic_id: UUID | None = None,
    ) -> None:
        """Continue at this offset. With the epoch of the record before it, the consumer detects a truncated log; with
        the id of the offset's topic, it detects a topic that was deleted and created again."""
        with self._state.used() as state:
            state.seek(partition, at_offset(offset, leader_epoch, topic_id))

    def leader_epoch(self, partition: PartitionLike) -> int:
        """The leader epoch of the last record before the position; -1 if unknown."""
        with self._state.used() as state:
            return state.leader_epoch(partition)

    def known_topic_id(self, topic: str) -> UUID | None:
        """The id of the topic in the latest cluster metadata; None while unknown. Sends no request."""
        with self._state.used() as state:
            return state.topic_id(topic)

    def seek_to_beginning(self, partitions: Collection[PartitionLike] = ()) -> None:
        """Continue at the first record of these partitions (default: all assigned ones)."""
        with self._state.used() as state:
            state.seek_lookup(partitions, EARLIEST)

    def seek_to_end(self, partitions: Collection[PartitionLike] = ()) -> None:
        with self._state.used() as state:
            state.seek_lookup(partitions, LATEST)

    def seek_to_times(self, timestamps: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]) -> None:
        """Continue at the first record at or after a time (ms since 1970), or at the end if there is none."""
        starts = {
            partition: at_time(timestamp) for partition, timestamp in by_partition(timestamps, "the time").items()
        }
        with self._state.used() as state:
            for partition, start in starts.items():
                state.seek(partition, start)

    def current_lag(self, partition: PartitionLike) -> int | None:
        """The number of offsets between the position and the end of the log, as of the last block; None before the
        first block. Under read_committed the end is that of `end_offsets`: the start of the first open transaction.
        Callable from any thread, also during a poll."""
        return self._state.lag(partition)

    # --- waking ------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the current blocking call, or the next one, raise WakeupError. Callable from any thread. An interrupted
        commit may still succeed. close() is not interrupted."""
        self._state.wakeup()


def warn_unless_closed(consumer: ConsumerBase) -> None:
    """An unreachable consumer still holds its partitions until the group's session timeout."""
    state = getattr(consumer, "_state", None)  # None: its constructor failed
    if state is not None and not state.is_done:
        text = f"{consumer!r} was never closed: use `with`, or call close()"
        warnings.warn(text, ResourceWarning, stacklevel=3, source=consumer)
