"""Start offsets of a group's partitions: the committed offset, else what the reset policy says.

Thread: network.

A cursor waits in AWAIT_COMMITTED until its group has answered. Only a valid answer counts: "the group has committed
nothing" is one, a coordinator that is unreachable for the moment is not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from multilane.client.fetch.buffer import FetchBuffer, Moved
from multilane.client.fetch.cursor import At, Cursor, CursorTable, Phase
from multilane.client.fetch.reset import ResetRule
from multilane.errors import MultilaneError, NoOffsetForPartition
from multilane.types import LeaderEpoch, Offset

if TYPE_CHECKING:
    from uuid import UUID

    from multilane.types import OffsetAndMetadata, TopicPartition


class Group(Protocol):
    def want(
        self,
        partitions: Collection[TopicPartition],
        found: Callable[[Mapping[TopicPartition, OffsetAndMetadata | None]], None],
        refused: Callable[[TopicPartition, MultilaneError], None],
    ) -> None: ...

    def unwant(self, partitions: Collection[TopicPartition]) -> None: ...


class StartOffsets:
    def __init__(
        self,
        group: Group | None,
        cursors: CursorTable,
        buffer: FetchBuffer,
        reset: ResetRule,
        stop: Callable[[Cursor, MultilaneError], None],
        id_of: Callable[[str], UUID | None] = lambda topic: None,
    ) -> None:
        self._id_of = id_of
        self._group = group
        self._cursors = cursors
        self._buffer = buffer
        self._reset = reset
        self._stop = stop

    def ask(self, cursors: Collection[Cursor]) -> None:
        waiting = {c.partition: c for c in cursors if c.phase is Phase.AWAIT_COMMITTED}
        if not waiting:
            return
        if self._group is None:
            raise AssertionError("a cursor in AWAIT_COMMITTED needs a group")
        self._group.want(
            waiting.keys(),
            lambda found: self._found(waiting, found),
            lambda partition, error: self._refused(waiting, partition, error),
        )

    def give_up(self, cursors: Iterable[Cursor]) -> None:
        """These will not start: cancels the lookup of their committed offsets."""
        waiting = [c.partition for c in cursors if c.phase is Phase.AWAIT_COMMITTED]
        if waiting and self._group is not None:
            self._group.unwant(waiting)

    def _found(
        self, waiting: Mapping[TopicPartition, Cursor], found: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> None:
        for partition, committed in found.items():
            cursor = waiting[partition]
            if not self._is_current(cursor):
                continue
            if committed is None:
                self._begin_anew(cursor)
            else:
                cursor.topic_id = cursor.topic_id or self._id_of(partition.topic)
                at = At(Offset(committed.offset), LeaderEpoch(committed.leader_epoch))
                cursor.positioned(at)
                self._buffer.put(cursor, Moved(partition, at.offset, at.epoch, cursor.topic_id))

    def _refused(
        self, waiting: Mapping[TopicPartition, Cursor], partition: TopicPartition, error: MultilaneError
    ) -> None:
        cursor = waiting[partition]
        if self._is_current(cursor):
            self._stop(cursor, error)

    def _is_current(self, cursor: Cursor) -> bool:
        """False if the cursor was moved by a seek, unassigned or replaced in the meantime."""
        return self._cursors.get(cursor.partition) is cursor and cursor.phase is Phase.AWAIT_COMMITTED

    def _begin_anew(self, cursor: Cursor) -> None:
        lookup = self._reset.lookup("the group has committed nothing")
        if lookup is not None:
            cursor.lost(lookup)
            return
        text = (
            f"{cursor.partition}: the group has committed no offset; seek first, or set auto.offset.reset to earliest, "
            "latest or by_duration:..."
        )
        self._stop(cursor, NoOffsetForPartition(text))
