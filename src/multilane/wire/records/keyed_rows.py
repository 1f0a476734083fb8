"""Rows that wait or are in work, copied out of their frames and chained by key: what lanes take windows from.

Thread: one owner.
Owns: a copy of each row, for as long as it waits or is in work. A waiting row is a line of the processor's cache and
its bytes; it becomes a `Record`, or a row of an Arrow batch, when it is taken. So rows that wait cost no object each,
and one that waits for long keeps nothing else alive.
Never: counts or settles offsets. Keys are compared byte by byte: two that only have the same hash are not one chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise, repeat
from struct import Struct
from typing import TYPE_CHECKING, Final, overload

import numpy as np
import numpy.typing as npt

from multilane.wire.records.block import Block
from multilane.wire.records.keyed_storage import Packed, Source, Storage
from multilane.wire.records.layout import KeepWord
from multilane.wire.records.loading import kernels
from multilane.wire.records.record import Headers, Record
from multilane.wire.records.window_layout import WindowLayout, window_layout

if TYPE_CHECKING:
    import pyarrow as pa

_ID_SIZE: Final = 8
_MOST_BUFFERS: Final = 2
_MOST_OF_A_KEY: Final = 4  # on average, of the rows that a window of the newest may pass over for each
_NONE: Final = Packed(b"", 0)
_MOST_SCRATCH: Final = 1024 * 1024  # is kept from window to window


class KeyedRows:
    __slots__ = ("_headers", "_kept", "_kernels", "_source", "partition", "takeable", "topic")

    def __init__(self, topic: str, partition: int, lanes: int) -> None:
        self.topic: Final = topic
        self.partition: Final = partition
        self.takeable = 0  # rows that could be taken now
        self._kept = Storage(lanes)
        self._kernels = kernels().keyed
        self._source: Source | None = None
        self._headers: dict[int, Headers] = {}  # by offset, of rows that have any

    # --- the way in --------------------------------------------------------------------------------------------------

    def put(self, block: Block, fresh: npt.NDArray[np.bool_] | None = None, *, is_last: bool = True) -> None:
        """Rows of a block, but for those that are not `fresh`; the last of these columns, or more will come."""
        if len(block.columns.buffers) > _MOST_BUFFERS:
            block = block.compact()
        if self._source is None or self._source.columns is not block.columns:
            self._source = Source(block.columns)
        source, start = self._source, block.start
        wanted = None if fresh is None else fresh.view(np.uint8)
        while (start := self._kernels.keep_rows(self._kept, source, wanted, start, block.stop)) < block.stop:
            self._make_room(block, start)
        if block.columns.header_spans is not None:
            self._keep_headers(block, fresh)
        if is_last:
            self.release_frame()
        self.takeable = int(self._kept.state[KeepWord.TAKEABLE])

    def release_frame(self) -> None:
        """No more will come of these columns, or not for long: their frame need not stay alive for us."""
        self._source = None

    def _make_room(self, block: Block, start: int) -> None:
        kept = self._kept
        if kept.state[KeepWord.FREE_ROW] < 0 and kept.state[KeepWord.ROWS] == kept.capacity:
            kept.double_rows()
            self._kernels.index_chains(kept)
            return
        left = block.slice(start - block.start)
        self._kernels.move_rows(kept, kept.new_arena(left.content_bytes))

    def _keep_headers(self, block: Block, fresh: npt.NDArray[np.bool_] | None) -> None:
        for row, offset in enumerate(block.offsets.tolist()):
            if (fresh is None or fresh[row]) and (headers := block.headers(row)):
                self._headers[offset] = headers

    # --- work --------------------------------------------------------------------------------------------------------

    def take(self, most: int, *, newest: bool = False) -> TakenRows:
        """Up to `most` rows; those of one key follow each other in their order, and no others of it are taken before
        these are released. With `newest` only those have content, and count, that no later one of their key follows;
        rows without a key are all different."""
        kept, state = self._kept, self._kept.state
        rows = _MOST_OF_A_KEY * most if newest else most
        if _ID_SIZE * rows > kept.scratch.size:
            kept.room_in_scratch(2 * _ID_SIZE * rows)
        count = self._kernels.take_rows(kept, rows, most)
        self.takeable = state.item(KeepWord.TAKEABLE)
        ids = chosen = kept.scratch[: _ID_SIZE * count].tobytes()
        skipped = _NONE
        if newest and (many := self._kernels.split_newest(kept, ids, count)) < count:
            skipped = Packed(kept.scratch[_ID_SIZE * many : _ID_SIZE * count].tobytes(), count - many)
            chosen, count = kept.scratch[: _ID_SIZE * many].tobytes(), many
        layout = window_layout(count, state.item(KeepWord.KEY_BYTES), state.item(KeepWord.VALUE_BYTES))
        taken = TakenRows(self, ids, skipped, layout, self._copy(chosen, layout))
        if self._headers:
            taken.headers = self._take_headers(taken)
        return taken

    def _take_headers(self, taken: TakenRows) -> list[Headers] | None:
        for offset in taken.skipped.column().tolist():
            self._headers.pop(offset, None)
        found = [self._headers.pop(offset, ()) for offset in taken.offsets]
        return found if any(found) else None

    def _copy(self, ids: bytes, layout: WindowLayout) -> bytes:
        """The columns of taken rows, in the places of the layout."""
        kept = self._kept
        if layout.size > kept.scratch.size:
            kept.room_in_scratch(layout.size if layout.size > _MOST_SCRATCH else 2 * layout.size)
        self._kernels.copy_rows(kept, ids, layout)
        columns = kept.scratch[: layout.size].tobytes()
        if kept.scratch.size > _MOST_SCRATCH:
            kept.room_in_scratch(_MOST_SCRATCH)
        return columns

    def release(self, taken: TakenRows) -> None:
        """All that was taken together is done with."""
        self._kernels.release_rows(self._kept, taken.ids, len(taken.ids) // _ID_SIZE)
        self.takeable = self._kept.state.item(KeepWord.TAKEABLE)


class TakenRows(Sequence[Record]):
    """A window of rows that were taken together. Its records are made when somebody looks at them, its Arrow batch
    without making any; either outlives the release. What was `skipped` for a newer one of its key is not among them."""

    __slots__ = ("_records", "_rows", "columns", "headers", "ids", "layout", "skipped")

    def __init__(self, rows: KeyedRows, ids: bytes, skipped: Packed, layout: WindowLayout, columns: bytes) -> None:
        self.ids: Final = ids  # of all that were taken
        self.skipped: Final = skipped  # their offsets
        self.layout: Final = layout
        self.columns: Final = columns
        self.headers: list[Headers] | None = None  # None when no row has any
        self._rows = rows
        self._records: list[Record] | None = None

    def __len__(self) -> int:
        return self.layout.rows

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> list[Record]: ...
    def __getitem__(self, at: int | slice) -> Record | list[Record]:
        return self.records[at]

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    @property
    def offsets(self) -> list[int]:
        return memoryview(self.columns)[: self.layout.timestamps].cast("q").tolist()

    @property
    def records(self) -> list[Record]:
        if self._records is None:
            self._records = self._made()
        return self._records

    @property
    def topic(self) -> str:
        return self._rows.topic

    @property
    def partition(self) -> int:
        return self._rows.partition

    @property
    def key_bitmap(self) -> bytes | None:
        """None when no key is null."""
        return self._bitmap(self.layout.bitmaps)

    @property
    def value_bitmap(self) -> bytes | None:
        return self._bitmap(self.layout.bitmaps + self.layout.bitmap_size)

    def _bitmap(self, at: int) -> bytes | None:
        bits = self.columns[at : at + self.layout.bitmap_size]
        return bits if int.from_bytes(bits, "little") != (1 << self.layout.rows) - 1 else None

    def _made(self) -> list[Record]:
        """By C loops only, as records of a block are."""
        layout, columns = self.layout, self.columns
        seen = memoryview(columns)
        ends = seen[layout.ends : layout.small].cast("i").tolist()
        headers = self.headers
        fields = zip(
            repeat(self.topic),
            repeat(self.partition),
            self.offsets,
            seen[layout.timestamps : layout.ends].cast("q").tolist(),
            columns[layout.small : layout.bitmaps],
            _cut(columns, layout.content, ends[: layout.rows + 1], self.key_bitmap),
            _cut(columns, layout.values, ends[layout.rows + 1 :], self.value_bitmap),
            repeat(()) if headers is None else headers,
            strict=False,  # the repeated ones have no end
        )
        return list(map(tuple.__new__, repeat(Record), fields))

    def batch(self) -> pa.RecordBatch:
        """Plain columns that keep nothing else alive."""
        return _to_batch()(self)


@cache
def _to_batch() -> Callable[[TakenRows], pa.RecordBatch]:
    """Arrow is loaded when somebody wants columns, and asked for once: even that takes its time in every window."""
    from multilane.wire.records.window_arrow import window_batch

    return window_batch


def _cut(columns: bytes, start: int, ends: list[int], bitmap: bytes | None) -> Sequence[bytes | None]:
    first, last = ends[1], ends[-1]
    if bitmap is None and first and ends == [*range(0, last + 1, first)]:
        equal: tuple[bytes, ...] = _equal_ones(first, len(ends) - 1).unpack_from(columns, start)
        return equal
    content = columns[start : start + last]
    cut: list[bytes | None] = [content[a:b] for a, b in pairwise(ends)]
    if bitmap is None:
        return cut
    return [one if bitmap[i // 8] >> i % 8 & 1 else None for i, one in enumerate(cut)]


@lru_cache(256)
def _equal_ones(size: int, count: int) -> Struct:
    """Keys are often equally long: then all are cut at once, in a fifth of the time."""
    return Struct(f"{size}s" * count)


def offsets_of(records: Sequence[Record]) -> Packed | list[int]:
    """Without making records of taken rows."""
    if isinstance(records, TakenRows):
        return Packed(records.columns, len(records))  # the offsets come first
    return [record.offset for record in records]
