"""A block: the rows of one partition's span as columns over the received bytes.

Thread: any (immutable).
Owns: references to the frame and the arena that its views point into; they live as long as the block (`pinned_bytes`).
Never: copies keys or values unless asked (`compact`, `arrow(copy=True)`, `records`); imports pyarrow before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from multilane.errors import RecordBatchError
from multilane.wire.records import headers as header_bytes
from multilane.wire.records.arrays import Bytes, Ints, Views
from multilane.wire.records.layout import COLUMN_BYTES
from multilane.wire.records.record import Headers, Record

if TYPE_CHECKING:
    import pyarrow as pa

    from multilane.wire.records.made_once import MadeOnce


CHUNK: Final = 4096
_LENGTH_FIRST: Final = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class Columns:
    """The arrays behind one or many blocks; slices share them.

    A view is Arrow's: 16 bytes, the length first. `segments` has a row per batch: first row, leader epoch, timestamp
    type. `header_spans` is None if no row has headers, `*_valid` (Arrow bitmaps) if the column has no null.
    """

    offsets: Ints
    timestamps: Ints
    keys: Views
    values: Views
    key_valid: Bytes | None
    value_valid: Bytes | None
    header_spans: Ints | None
    segments: Ints
    buffers: tuple[Bytes, ...]
    header_buffers: tuple[Bytes, ...]

    @property
    def pinned_bytes(self) -> int:
        arrays = [self.offsets, self.timestamps, self.keys, self.values, self.key_valid, self.value_valid]
        arrays += [self.header_spans, self.segments, *self.buffers, *self.header_buffers]
        roots = {id(root): root.nbytes for root in (_root(a) for a in arrays if a is not None)}
        return sum(roots.values())


def _root(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array that owns the memory: a reference keeps all of it alive."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _python_bytes(array: pa.BinaryViewArray) -> list[bytes | None]:
    # Twice as fast as to_pylist(), which makes a scalar for every view first.
    return array.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Block:
    """Rows [start, stop) of the columns: records of one partition, in offset order."""

    topic: str
    partition: int
    columns: Columns
    start: int
    stop: int
    next_offset: int
    leader_epoch: int = -1
    error: RecordBatchError | None = None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    made: MadeOnce | None = None  # of a block that several readers share, in slices of their own

    def __len__(self) -> int:
        return self.stop - self.start

    def __repr__(self) -> str:
        reach = f"[{self.first_offset}..{int(self.offsets[-1])}]" if len(self) else "[]"
        fault = "" if self.error is None else f", error={type(self.error).__name__}"
        return f"Block({self.topic}-{self.partition}, {len(self)} rows {reach}, next={self.next_offset}{fault})"

    @property
    def offsets(self) -> Ints:
        return self.columns.offsets[self.start : self.stop]

    @property
    def timestamps(self) -> Ints:
        """Milliseconds since 1970."""
        return self.columns.timestamps[self.start : self.stop]

    @property
    def first_offset(self) -> int:
        return int(self.columns.offsets[self.start]) if len(self) else self.next_offset

    @property
    def timestamp_types(self) -> npt.NDArray[np.int8]:
        """0: the producer's time, 1: the broker's."""
        segments = self.own_segments()
        rows = np.diff(segments[:, 0], append=len(self))
        return np.repeat(segments[:, 2].astype(np.int8), rows)

    def own_segments(self) -> Ints:
        """The segments of these rows, with row numbers counted from the first row."""
        segments = self.columns.segments
        first = max(int(np.searchsorted(segments[:, 0], self.start, side="right")) - 1, 0)
        last = int(np.searchsorted(segments[:, 0], self.stop, side="left"))
        own = segments[first:last].copy()
        own[:, 0] = np.maximum(own[:, 0] - self.start, 0)
        return own

    @property
    def pinned_bytes(self) -> int:
        """Bytes of memory that this block keeps alive; a frame counts in full."""
        return self.columns.pinned_bytes

    @property
    def content_bytes(self) -> int:
        """Bytes of keys and values."""
        return self._content(self.columns.keys) + self._content(self.columns.values)

    @property
    def own_bytes(self) -> int:
        """Bytes of these rows alone: keys, values, headers and the columns themselves."""
        spans = self.columns.header_spans
        headers = 0 if spans is None else int((spans[self.start : self.stop] >> 32).sum())
        return self.content_bytes + headers + COLUMN_BYTES * len(self)

    def rows_within(self, room: int, most: int) -> int:
        """How many of the first `most` rows begin before `room` bytes of keys and values are full; at least one."""
        rows = slice(self.start, min(self.stop, self.start + most))
        lengths = self._lengths(self.columns.keys, rows).astype(np.int64) + self._lengths(self.columns.values, rows)
        return int(np.searchsorted(np.cumsum(lengths), max(1, room))) + 1

    def _content(self, views: Views) -> int:
        return int(self._lengths(views, slice(self.start, self.stop)).sum(dtype=np.int64))

    def _lengths(self, views: Views, rows: slice) -> npt.NDArray[Any]:
        """The content length of each view: its first four bytes."""
        return views.view(_LENGTH_FIRST)[rows, 0]

    @property
    def keys(self) -> pa.BinaryViewArray:
        return self._binary(self.columns.keys, self.columns.key_valid)

    @property
    def values(self) -> pa.BinaryViewArray:
        return self._binary(self.columns.values, self.columns.value_valid)

    def _binary(self, views: Views, valid: Bytes | None) -> pa.BinaryViewArray:
        import pyarrow as pa

        bitmap = None if valid is None else pa.py_buffer(valid)
        buffers = [bitmap, pa.py_buffer(views), *(pa.py_buffer(b) for b in self.columns.buffers)]
        return pa.Array.from_buffers(pa.binary_view(), len(self), buffers, offset=self.start)

    def slice(self, start: int, stop: int | None = None) -> Block:
        """Rows [start, stop) without a copy. If rows at the end are left out, `next_offset` is the first of them."""
        first, last, _ = slice(start, stop).indices(len(self))
        last = max(first, last)
        begin, end = self.start + first, self.start + last
        if end == self.stop:
            return self._between(begin, end, self.next_offset, self.leader_epoch, self.error)
        here = self.epoch_at(last - 1) if last else -1
        return self._between(begin, end, int(self.columns.offsets[end]), here, None)

    def _between(
        self, start: int, stop: int, next_offset: int, leader_epoch: int, error: RecordBatchError | None
    ) -> Block:
        # Not `replace`, which takes three times as long: lanes slice a block for every few records.
        position = (start, stop, next_offset, leader_epoch, error)
        watermarks = (self.high_watermark, self.last_stable_offset, self.log_start_offset)
        return type(self)(self.topic, self.partition, self.columns, *position, *watermarks, self.made)

    def with_watermarks(self, high_watermark: int, last_stable_offset: int, log_start_offset: int) -> Block:
        return replace(
            self,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
        )

    def epoch_at(self, row: int) -> int:
        """The leader epoch of the row's batch."""
        at = self.start + self._row(row)
        segment = int(self.columns.segments[:, 0].searchsorted(at, side="right")) - 1
        return int(self.columns.segments[segment, 1])

    def headers(self, row: int) -> Headers:
        at = self.start + self._row(row)
        spans = self.columns.header_spans
        return () if spans is None else header_bytes.parse(int(spans[at]), self.columns.header_buffers)

    def _row(self, row: int) -> int:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a block of {len(self)}")
        return row % len(self)

    def records(self) -> Iterator[Record]:
        """Records, created in chunks of 4,096 on demand."""
        if self.made is not None:
            yield from self.made.records(self.start, self.stop)
            return
        for at in range(0, len(self), CHUNK):
            yield from _records_of(self.slice(at, at + CHUNK))

    def listed(self, first: int, end: int) -> list[Record]:
        """The records of rows [first, end)."""
        if self.made is not None:
            return self.made.records(self.start + first, self.start + end)
        return list(self.slice(first, end).records())

    def extended(self, after: Block) -> Block:
        """With the rows of another slice of the same columns, which follow directly."""
        return replace(after, start=self.start)

    def plain_batch(self, first: int, end: int) -> pa.RecordBatch:
        """An Arrow batch of rows [first, end) with plain columns, which pins no frame."""
        if self.made is not None:
            return self.made.batch(self.start + first, self.start + end)
        return self.slice(first, end).arrow(copy=True)

    def arrow(self, *, copy: bool = False) -> pa.RecordBatch:
        """The rows as an Arrow record batch. With `copy` keys and values are plain binary and pin nothing."""
        from multilane.wire.records import arrow

        return arrow.record_batch(self, copy=copy)

    def compact(self) -> Block:
        """A copy of the rows that pins only its own memory."""
        from multilane.wire.records import arrow

        shared = None if self.made is None else self.made.compacted(self.start, self.stop)
        if shared is None:
            return arrow.compact(self)
        return replace(shared, next_offset=self.next_offset, leader_epoch=self.leader_epoch, error=self.error)

    def made_once(self) -> Block:
        """The same rows for several readers: their records, and what else is made of them, are made once."""
        from multilane.wire.records.made_once import MadeOnce

        return self.shared_by(MadeOnce(replace(self, made=None)))

    def shared_by(self, made: MadeOnce) -> Block:
        """`made` is of a block with the same rows of the same columns."""
        return replace(self, made=made)


def _records_of(block: Block) -> Iterator[Record]:
    """All records of a small block, with C loops only: map over columns that are Python lists."""
    fields = zip(
        repeat(block.topic),
        repeat(block.partition),
        block.offsets.tolist(),
        block.timestamps.tolist(),
        _types_of(block),
        _python_bytes(block.keys),
        _python_bytes(block.values),
        _headers_of(block),
        strict=False,  # the repeated columns are endless
    )
    return map(tuple.__new__, repeat(Record), fields)


def _types_of(block: Block) -> Iterable[int]:
    """Almost always one type for all rows; a block of one batch needs no check."""
    segments = block.columns.segments
    if len(segments) == 1:
        return repeat(int(segments[0, 2]))
    types = block.timestamp_types
    return repeat(int(types[0])) if bool((types == types[0]).all()) else types.tolist()


def _headers_of(block: Block) -> Iterator[Headers]:
    spans = block.columns.header_spans
    if spans is None:
        return repeat(())
    buffers = block.columns.header_buffers
    return (header_bytes.parse(span, buffers) for span in spans[block.start : block.stop].tolist())
