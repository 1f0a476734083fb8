"""Records of a partition in one chain that wait as rows of their blocks, for lanes that take windows.

Thread: none (pure); one owner.

Only one window is taken at a time, in log order, so a window is a slice of a block: no row is copied or looked at until
the function wants it. Several triggers of a partition take slices of the same block, and what is made of it is made
once. Rows cannot be put back: a lane with a window that is retried in place rests with it, and so does the partition,
which is the order that is asked for. Owns the waiting rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Never

import numpy as np

from multilane.lanes.intake import Piece
from multilane.wire.records.block import Block
from multilane.wire.records.keyed_storage import Packed
from multilane.wire.records.record import Record
from multilane.wire.records.window_rows import WindowRows

if TYPE_CHECKING:
    import pyarrow as pa


class RowSpan(NamedTuple):
    """Rows [first, end) of a block."""

    block: Block
    first: int
    end: int


class PartitionRows:
    __slots__ = ("_is_taken", "_spans", "_waiting", "on_defer", "partition", "topic")
    takes_back: ClassVar = False

    def __init__(self, topic: str, partition: int) -> None:
        self.topic: Final = topic
        self.partition: Final = partition
        self._spans: deque[RowSpan] = deque()
        self._waiting = 0
        self._is_taken = False
        self.on_defer: Callable[[float], object] = lambda due: None  # no row is deferred

    @property
    def takeable(self) -> int:
        return 0 if self._is_taken else self._waiting

    @property
    def singles(self) -> None:
        return None

    def put_piece(self, piece: Piece, now: float) -> None:
        block = piece.block
        if piece.fresh is None:
            self._add(block, 0, len(block))
            return
        edges = np.flatnonzero(np.diff(piece.fresh.astype(np.int8), prepend=0, append=0)).tolist()
        for first, end in zip(edges[::2], edges[1::2], strict=True):
            self._add(block, first, end)

    def _add(self, block: Block, first: int, end: int) -> None:
        """A span that continues the last one becomes one with it: fewer windows lie in two."""
        if first == end:
            return
        self._waiting += end - first
        if self._spans:
            last, begin, stop = self._spans[-1]
            if last.columns is block.columns and last.start + stop == block.start + first:
                self._spans[-1] = RowSpan(last.extended(block), begin, stop + end - first)
                return
        self._spans.append(RowSpan(block, first, end))

    def put(self, records: Iterable[Record], now: float) -> Never:
        raise AssertionError("a record cannot become a row: records that are looked at first wait in chains")

    put_rested = put

    def release_held(self, record: Record, now: float) -> None:
        """No row waits for a record in flight elsewhere: consumers that hold keys have chains."""

    def release_frames(self) -> None:
        compacted = (block.slice(first, end).compact() for block, first, end in self._spans)
        self._spans = deque(RowSpan(block, 0, len(block)) for block in compacted)

    def wake(self, now: float) -> None:
        """No row is deferred."""

    def bring_first(self, *, failed: bool) -> bool:
        """Rows that failed stay with their lanes: no row that waits here has failed."""
        return not failed and self.takeable > 0

    def take(self, most: int, now: float, *, one_each: bool = False) -> RowWindow:
        """The next rows, up to `most`. No others are taken before these are released."""
        spans: list[RowSpan] = []
        while most and self._spans:
            block, first, end = span = self._spans[0]
            many = end - first
            if many > most:
                many = most
                span = RowSpan(block, first, first + many)
                self._spans[0] = RowSpan(block, first + many, end)
            else:
                self._spans.popleft()
            spans.append(span)
            most -= many
            self._waiting -= many
        self._is_taken = True
        return RowWindow(self.topic, self.partition, spans)

    def release_all(self, records: Sequence[Record], now: float, again: Sequence[Record] = ()) -> None:
        """`records` is what `take` returned."""
        if again:
            raise AssertionError("a row cannot be put back: records that are retried in place wait in chains")
        self._is_taken = False


class RowWindow(WindowRows):
    """Rows of blocks, in log order, at least one."""

    __slots__ = ("_partition", "_records", "_rows", "_spans", "_topic")

    def __init__(self, topic: str, partition: int, spans: Sequence[RowSpan]) -> None:
        self._topic = topic
        self._partition = partition
        self._spans = spans
        self._rows = sum(end - first for _, first, end in spans)
        self._records: list[Record] | None = None

    def __len__(self) -> int:
        return self._rows

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def partition(self) -> int:
        return self._partition

    @property
    def records(self) -> list[Record]:
        if self._records is None:
            parts = [block.listed(first, end) for block, first, end in self._spans]
            self._records = parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
        return self._records

    def packed_offsets(self) -> Packed:
        parts = [block.offsets[first:end].tobytes() for block, first, end in self._spans]
        return Packed(parts[0] if len(parts) == 1 else b"".join(parts), self._rows)

    def reach(self) -> tuple[int, int]:
        (block, first, _), (last, _, end) = self._spans[0], self._spans[-1]
        return block.offsets.item(first), last.offsets.item(end - 1)

    def batch(self) -> pa.RecordBatch:
        batches = [block.plain_batch(first, end) for block, first, end in self._spans]
        if len(batches) == 1:
            return batches[0]
        from multilane.wire.records.arrow import joined

        return joined(batches)
