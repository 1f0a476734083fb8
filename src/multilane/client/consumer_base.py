"""What a consumer is told without waiting for anything: the same for threads and for event loops.

Thread: application, one at a time; `wakeup` from any.

`Consumer` and `AsyncConsumer` add the calls that wait.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias
from uuid import UUID

from multilane.client.arguments import at_offset, at_time, by_partition, checked_callback
from multilane.client.consumer_state import ConsumerState
from multilane.client.group.metadata import GroupMetadata
from multilane.client.group.wanted_topics import ClientPattern, ServerPattern, TopicNames
from multilane.client.rebalance import RebalanceListener
from multilane.client.subscriber import CommitCallback, Subscriber
from multilane.errors import GroupError, MultilaneError
from multilane.types import OffsetAndMetadata, PartitionLike, TopicPartition
from multilane.wire.compose import EARLIEST, LATEST

# Keys of a mapping are what they are to mypy: one with tuples is not one with partitions, though each tuple will do.
Offsets: TypeAlias = (
    Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | OffsetAndMetadata]
)


class ConsumerBase:
    _front: ConsumerState
    _subscriber: Subscriber

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._front}>"

    # --- assignment --------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        """Read exactly these partitions from now on. Those that were assigned before keep their position."""
        with self._front.used() as front:
            wanted = tuple(partitions)
            self._subscriber.before_assigning()
            front.assign(wanted)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._front.assignment

    def pause(self, partitions: Iterable[PartitionLike]) -> None:
        """Hand out nothing of these until resumed."""
        with self._front.used() as front:
            front.set_paused(partitions, True)

    def resume(self, partitions: Iterable[PartitionLike]) -> None:
        with self._front.used() as front:
            front.set_paused(partitions, False)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._front.paused

    @property
    def stopped(self) -> Mapping[TopicPartition, MultilaneError]:
        """Partitions that cannot go on, and why. Seeking one makes it go on from there."""
        return self._front.failures()

    # --- the group ---------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] | ServerPattern,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Share these topics with the other members of the group; replaces what was subscribed to before.

        A compiled pattern is matched by us against whole names, a `ServerPattern` (RE2J) by the broker. The listener is
        called by poll(), when partitions come and go.
        """
        with self._front.used():
            self._subscriber.subscribe(topics, listener)

    @property
    def subscription(self) -> frozenset[str] | re.Pattern[str] | ServerPattern | None:
        """The topics or the pattern that was subscribed to; None without a subscription."""
        match self._subscriber.subscription:
            case TopicNames(topics):
                return topics
            case ClientPattern(pattern):
                return pattern
            case wish:
                return wish

    def commit_async(
        self,
        offsets: Offsets | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting. A later poll() calls `callback(offsets, error)`; without one, errors are logged."""
        with self._front.used():
            self._subscriber.commit_async(offsets, checked_callback(callback))

    @property
    def member_id(self) -> str | None:
        """What the group calls this member; None while it is none. From any thread."""
        identity = self._front.standing.identity
        return None if identity is None else identity.member_id

    @property
    def fenced_after(self) -> float:
        """When this member must count as expelled from its group unless a heartbeat is answered before: on the clock's
        monotonic time, infinite where there is no group. From any thread."""
        return self._front.standing.fenced_after

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is to its group at present; confluent-kafka's `send_offsets_to_transaction` takes it."""
        identity = self._subscriber.identity
        if identity is None:
            raise GroupError("this consumer is not a member of a group at present: subscribe() and poll() first")
        return GroupMetadata(identity)

    def enforce_rebalance(self, reason: str = "the application asks for it") -> None:
        """Have the group's partitions assigned anew. Under KIP-848 the broker does that by itself."""
        with self._front.used():
            self._subscriber.enforce_rebalance(reason)

    # --- positions ---------------------------------------------------------------------------------------------------

    def seek(
        self,
        partition: PartitionLike,
        offset: int,
        leader_epoch: int | None = None,
        topic_id: UUID | None = None,
    ) -> None:
        """Go on at this offset. With the epoch of the record before it, a cut log is noticed; with the id of the topic
        that it is an offset of, one that was made again."""
        with self._front.used() as front:
            front.seek(partition, at_offset(offset, leader_epoch, topic_id))

    def leader_epoch(self, partition: PartitionLike) -> int:
        """That of the last record before the position, or -1 where it is not known."""
        with self._front.used() as front:
            return front.leader_epoch(partition)

    def known_topic_id(self, topic: str) -> UUID | None:
        """The id that the topic had when the brokers were last asked; None while it is not known. Asks nobody."""
        with self._front.used() as front:
            return front.topic_id(topic)

    def seek_to_beginning(self, partitions: Collection[PartitionLike] = ()) -> None:
        """Go on at the first record there is; all assigned partitions when none is named."""
        with self._front.used() as front:
            front.seek_lookup(partitions, EARLIEST)

    def seek_to_end(self, partitions: Collection[PartitionLike] = ()) -> None:
        with self._front.used() as front:
            front.seek_lookup(partitions, LATEST)

    def seek_to_times(self, timestamps: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]) -> None:
        """Go on at the first record at or after a time (ms since 1970), or at the end when there is none."""
        places = {
            partition: at_time(timestamp) for partition, timestamp in by_partition(timestamps, "the time").items()
        }
        with self._front.used() as front:
            for partition, place in places.items():
                front.seek(partition, place)

    def current_lag(self, partition: PartitionLike) -> int | None:
        """Offsets between the position and the end of the log, as of the last block; None before the first. Under
        read_committed the end is that of `end_offsets`: where the first undecided transaction begins."""
        with self._front.used() as front:
            return front.lag(partition)

    # --- life --------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """From any thread: make the call that waits, or the next one that does, raise WakeupError. A commit that was
        interrupted may succeed all the same. close() is not interrupted."""
        self._front.wakeup()


def warn_unless_closed(consumer: ConsumerBase) -> None:
    """A consumer that nobody can reach any more still holds its partitions: its group waits until its time is over."""
    front = getattr(consumer, "_front", None)  # None: it was never made
    if front is not None and not front.is_done:
        text = f"{consumer!r} was never closed: use `with`, or close() it"
        warnings.warn(text, ResourceWarning, stacklevel=3, source=consumer)
