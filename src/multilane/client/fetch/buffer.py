"""Fetched records not yet returned by poll: the one object shared by network, decoder and application threads.

Thread: any; every method takes the lock, none blocks while holding it.

The network thread reserves a slot per partition of a frame, in the order of the log; a decoder thread fills it; the
application takes filled slots from the front. So two decoders may finish in any order and records still come in order.

A slot that cannot be decoded starts a new refetch epoch of its partition: the slots behind it are dropped, and slots
that are reserved under the old epoch afterwards are discarded from the start, until the network thread has learned of
it and fetches under the new one. So nothing is handed out across the hole, however late it learns of it.

Memory is charged per frame, because a block pins the whole frame it lies in: the charge ends with the last slot of the
frame. If only a small part of a large frame remains (a paused partition), that part is copied out and the frame is
released. If several consumers share a frame, each is charged for its own records. Charges bound how much is fetched
ahead (`room`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from multilane.types import LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from multilane.client.fetch.cursor import Cursor
    from multilane.errors import MultilaneError
    from multilane.wire.records.block import Block

# A large frame is released, and its rest copied out, when less than this share of it remains in use.
_LEFT_BEHIND_SHARE: Final = 0.25
_WORTH_COPYING_OUT: Final = 1 << 20
_SMALL_ROOM: Final = 1 << 20  # with less room than this, `on_room` is called when there is more


@dataclass(frozen=True, slots=True)
class Moved:
    """The partition continues at another offset: a lookup was answered, or the log changed. `topic_id`: of the log."""

    partition: TopicPartition
    offset: Offset
    epoch: LeaderEpoch
    topic_id: UUID | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """The partition stops here."""

    partition: TopicPartition
    error: MultilaneError


class _Frame:
    """The charge of one received frame, or of this consumer's share of it."""

    __slots__ = ("bytes", "live_bytes", "slots", "whole_bytes")

    def __init__(self, charge: int, whole: int) -> None:
        self.bytes = charge
        self.whole_bytes = whole
        self.live_bytes = 0
        self.slots: set[Slot] = set()


class Slot:
    """An entry in a partition's queue. Only the buffer changes it."""

    __slots__ = (
        "content",
        "extra_bytes",
        "frame",
        "generation",
        "is_discarded",
        "offset",
        "partition",
        "refetch_epoch",
        "span_bytes",
    )

    def __init__(self, cursor: Cursor, frame: _Frame | None, span_bytes: int) -> None:
        self.partition = cursor.partition
        self.generation = cursor.generation
        self.refetch_epoch = cursor.refetch_epoch
        self.offset = cursor.offset
        self.frame = frame
        self.span_bytes = span_bytes
        self.extra_bytes = 0
        self.content: Block | Moved | Failed | None = None
        self.is_discarded = False


class FetchBuffer:
    def __init__(self, limit: int, *, on_ready: Callable[[], None], on_room: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self.limit = limit
        self._on_ready = on_ready
        self._on_room = on_room
        self._charged = 0
        self._starving = False
        self._queues: dict[TopicPartition, deque[Slot]] = {}
        self._generations: dict[TopicPartition, int] = {}
        self._refetch_epochs: dict[TopicPartition, int] = {}

    # --- network thread ----------------------------------------------------------------------------------------------

    def room(self) -> int:
        """Bytes that may still be fetched. When it is not enough, `on_room` is called as soon as there is more."""
        with self._lock:
            left = self.limit - self._charged
            self._starving = left < max(self.limit // 2, _SMALL_ROOM)
            return left

    @property
    def charged_bytes(self) -> int:
        with self._lock:
            return self._charged

    def reserve(
        self, frame_bytes: int, spans: Collection[tuple[Cursor, int]], *, is_shared: bool = False
    ) -> list[Slot]:
        """A slot for each (cursor before it advances, bytes of its records) of one frame."""
        with self._lock:
            frame = _Frame(sum(size for _, size in spans) if is_shared else frame_bytes, frame_bytes)
            slots = [self._append(Slot(cursor, frame, size)) for cursor, size in spans]
            if any(not s.is_discarded for s in slots):
                self._charged += frame.bytes
            return slots

    def put(self, cursor: Cursor, content: Moved | Failed) -> None:
        """Queues something other than records, in order, behind the records fetched before."""
        with self._lock:
            slot = Slot(cursor, None, 0)
            slot.content = content
            if not self._append(slot).is_discarded and isinstance(content, Moved):
                self._forget_move_before(cursor.partition)
        self._on_ready()

    def evict(self, cursor: Cursor) -> tuple[Offset, int] | None:
        """Drops the buffered records of a paused partition. Returns the offset and the refetch epoch to continue
        with; None if nothing was buffered."""
        with self._lock:
            queue = self._queues.get(cursor.partition, deque())
            evicted_slots: list[Slot] = []
            while queue and queue[-1].generation == cursor.generation and _is_records(queue[-1]):
                evicted_slots.append(queue.pop())
            for slot in evicted_slots:
                self._release(slot)
            return (evicted_slots[-1].offset, self._next_refetch_epoch(cursor.partition)) if evicted_slots else None

    def seal(self, cursor: Cursor) -> int:
        """The log of this partition is gone: keeps its decoded records and drops the rest. Returns the refetch
        epoch of the log that follows, which late reports about the old one cannot affect."""
        with self._lock:
            if self._generations.get(cursor.partition) != cursor.generation:
                return cursor.refetch_epoch  # the application has moved on: this cursor is obsolete
            queue = self._queues.get(cursor.partition, deque())
            decoded = 0
            while decoded < len(queue) and queue[decoded].content is not None:
                decoded += 1
            while len(queue) > decoded:
                self._release(queue.pop())
            return self._next_refetch_epoch(cursor.partition)

    def is_offset_certain(self, cursor: Cursor) -> bool:
        """Whether every batch before the cursor's offset was readable. Until then the offset is a guess."""
        with self._lock:
            is_discarded = self._refetch_epochs.get(cursor.partition, 0) != cursor.refetch_epoch
            return not is_discarded and all(s.content is not None for s in self._queues.get(cursor.partition, ()))

    # --- decoder thread ----------------------------------------------------------------------------------------------

    def fill(self, slot: Slot, block: Block) -> int | None:
        """Stores a decoded block. If it is incomplete, returns the refetch epoch in which to fetch the rest."""
        refetch_epoch = None
        with self._lock:
            if slot.is_discarded:
                return None
            slot.content = block
            slot.extra_bytes = _beyond(slot.frame, block.pinned_bytes)
            self._charged += slot.extra_bytes
            if block.error is not None:
                refetch_epoch = self._discard_behind(slot)
        self._on_ready()
        return refetch_epoch

    def discard(self, slot: Slot) -> int | None:
        """Nothing of this slot can be read: drops it and all slots behind it.

        Returns the refetch epoch in which to fetch it again; None if it was dropped before.
        """
        with self._lock:
            if slot.is_discarded:
                return None
            refetch_epoch = self._discard_behind(slot)
            self._queues[slot.partition].remove(slot)
            self._release(slot)
            return refetch_epoch

    # --- application thread ------------------------------------------------------------------------------------------

    def expect(self, generations: Mapping[TopicPartition, int]) -> None:
        """From now on, only these partitions in these generations are handed out."""
        with self._lock:
            for partition in [p for p, g in self._generations.items() if generations.get(p) != g]:
                self._drop(partition)
            for partition in generations.keys() - self._generations.keys():
                self._refetch_epochs.pop(partition, None)
            self._generations = dict(generations)

    def take(self, limit: int | None, skip: Collection[TopicPartition]) -> list[Block | Moved | Failed]:
        """Takes what is ready, at most `limit` rows, in order per partition; partitions take turns in going first.

        Moves and failures are not rows: they come along at the front of a queue even with a limit of 0.
        """
        with self._lock:
            taken: list[Block | Moved | Failed] = []
            rows_left = limit
            for partition in [p for p, q in self._queues.items() if q and p not in skip]:
                rows_left = self._take_from(partition, rows_left, taken)
            has_room = self._starving and self._charged <= self.limit // 2
            if has_room:
                self._starving = False
        if has_room:
            self._on_room()
        return taken

    def clear(self) -> None:
        self.expect({})

    # --- under the lock ----------------------------------------------------------------------------------------------

    def _append(self, slot: Slot) -> Slot:
        partition = slot.partition
        slot.is_discarded = not self._is_valid(slot)
        if not slot.is_discarded:
            self._queues.setdefault(partition, deque()).append(slot)
            if slot.frame is not None:
                slot.frame.slots.add(slot)
                slot.frame.live_bytes += slot.span_bytes
        return slot

    def _forget_move_before(self, partition: TopicPartition) -> None:
        """Of two adjacent moves only the later counts, and moves must not pile up while nothing is taken."""
        queue = self._queues[partition]
        if len(queue) > 1 and isinstance(queue[-2].content, Moved):
            self._release(queue[-2])
            del queue[-2]

    def _take_from(
        self, partition: TopicPartition, rows_left: int | None, taken: list[Block | Moved | Failed]
    ) -> int | None:
        queue = self._queues[partition]
        took = False
        while queue and (content := queue[0].content) is not None:
            slot = queue[0]
            if isinstance(content, Moved | Failed):
                self._release(queue.popleft())
                taken.append(content)
                continue
            if rows_left == 0:
                break
            took = True
            if rows_left is not None and len(content) > rows_left:
                taken.append(content.slice(0, rows_left))
                slot.content = content.slice(rows_left)
                slot.offset = Offset(taken[-1].next_offset)  # type: ignore[union-attr]
                rows_left = 0
                break
            self._release(queue.popleft())
            taken.append(content)
            rows_left = None if rows_left is None else rows_left - len(content)
        if took:  # to the end of the order: the others go first next time
            self._queues[partition] = self._queues.pop(partition)
        return rows_left

    def _release(self, slot: Slot) -> None:
        slot.is_discarded = True
        self._charged -= slot.extra_bytes
        slot.extra_bytes = 0
        frame = slot.frame
        if frame is None:
            return
        frame.slots.discard(slot)
        frame.live_bytes -= slot.span_bytes
        if not frame.slots:
            self._charged -= frame.bytes
        elif frame.bytes >= _WORTH_COPYING_OUT and frame.live_bytes < _LEFT_BEHIND_SHARE * frame.bytes:
            self._copy_out(frame)

    def _copy_out(self, frame: _Frame) -> None:
        if any(s.content is None for s in frame.slots):
            return  # still being decoded from the frame
        for slot in frame.slots:
            block = slot.content.compact()  # type: ignore[union-attr]
            slot.content = block
            slot.frame = None
            self._charged += block.pinned_bytes - slot.extra_bytes
            slot.extra_bytes = block.pinned_bytes
        frame.slots.clear()
        self._charged -= frame.bytes

    def _is_valid(self, slot: Slot) -> bool:
        partition = slot.partition
        return (
            self._generations.get(partition) == slot.generation
            and self._refetch_epochs.get(partition, 0) == slot.refetch_epoch
        )

    def _discard_behind(self, slot: Slot) -> int:
        queue = self._queues[slot.partition]
        while queue and queue[-1] is not slot:
            self._release(queue.pop())
        return self._next_refetch_epoch(slot.partition)

    def _next_refetch_epoch(self, partition: TopicPartition) -> int:
        refetch_epoch = self._refetch_epochs[partition] = self._refetch_epochs.get(partition, 0) + 1
        return refetch_epoch

    def _drop(self, partition: TopicPartition) -> None:
        for slot in self._queues.pop(partition, ()):
            self._release(slot)
        self._refetch_epochs.pop(partition, None)


def _beyond(frame: _Frame | None, pinned: int) -> int:
    """Bytes that a block pins beyond the charge of its frame. A block that pins less than the whole frame does not lie
    in the frame: it was decompressed or copied out."""
    if frame is None:
        return pinned
    return pinned - frame.whole_bytes if pinned >= frame.whole_bytes else max(0, pinned - frame.bytes)


def _is_records(slot: Slot) -> bool:
    return not isinstance(slot.content, Moved | Failed)
