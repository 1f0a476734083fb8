"""Rows that wait or are in flight, copied out of their frames and chained by key: lanes take windows from them.

Thread: one owner.
Owns: a copy of each row while it waits or is in flight. A waiting row takes one cache line and its bytes; it becomes a
`Record`, or a row of an Arrow batch, when it is taken. So waiting rows need no objects, and a row that waits for a long
time keeps nothing else alive.
Never: counts or settles offsets. Keys are compared byte by byte: keys with the same hash are different chains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import pairwise, repeat
from struct import Struct
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from multilane.wire.records.block import Block
from multilane.wire.records.keyed_storage import Packed, Source, Storage
from multilane.wire.records.layout import KeepWord
from multilane.wire.records.loading import kernels
from multilane.wire.records.record import Headers, Record
from multilane.wire.records.window_layout import WindowLayout, window_layout
from multilane.wire.records.window_rows import WindowRows

if TYPE_CHECKING:
    import pyarrow as pa

_ID_SIZE: Final = 8
_MOST_BUFFERS: Final = 2
_ROWS_PER_NEWEST: Final = 4  # rows of a key, on average, from which a window of newest rows takes one
_NOTHING_SKIPPED: Final = Packed(b"", 0)
_MOST_SCRATCH: Final = 1024 * 1024  # bytes that are kept from window to window


class KeyedRows:
    __slots__ = ("_headers", "_kept", "_kernels", "_source", "partition", "takeable", "topic")

    def __init__(self, topic: str, partition: int, lanes: int) -> None:
        self.topic: Final = topic
        self.partition: Final = partition
        self.takeable = 0  # rows that can be taken now
        self._kept = Storage(lanes)
        self._kernels = kernels().keyed
        self._source: Source | None = None
        self._headers: dict[int, Headers] = {}  # by offset, only of rows with headers

    # --- adding rows -------------------------------------------------------------------------------------------------

    def put(self, block: Block, fresh: npt.NDArray[np.bool_] | None = None, *, is_last: bool = True) -> None:
        """Adds the rows of a block that are `fresh`. `is_last`: no more blocks of these columns follow."""
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
        """Releases the frame of the last block: no more blocks of its columns follow, or not soon."""
        self._source = None

    def _make_room(self, block: Block, start: int) -> None:
        kept = self._kept
        if kept.state[KeepWord.FREE_ROW] < 0 and kept.state[KeepWord.ROWS] == kept.capacity:
            kept.double_rows()
            self._kernels.index_chains(kept)
            return
        remaining = block.slice(start - block.start)
        self._kernels.move_rows(kept, kept.new_arena(remaining.content_bytes))

    def _keep_headers(self, block: Block, fresh: npt.NDArray[np.bool_] | None) -> None:
        for row, offset in enumerate(block.offsets.tolist()):
            if (fresh is None or fresh[row]) and (headers := block.headers(row)):
                self._headers[offset] = headers

    # --- taking and releasing rows -----------------------------------------------------------------------------------

    def take(self, most: int, *, newest: bool = False) -> TakenRows:
        """Up to `most` rows. Rows of one key follow each other in order, and no others of the key are taken before
        these are released. With `newest` only the newest row of each key has content, and counts; rows without a key
        all count."""
        kept, state = self._kept, self._kept.state
        rows = _ROWS_PER_NEWEST * most if newest else most
        if _ID_SIZE * rows > kept.scratch.size:
            kept.room_in_scratch(2 * _ID_SIZE * rows)
        count = self._kernels.take_rows(kept, rows, most)
        self.takeable = state.item(KeepWord.TAKEABLE)
        ids = chosen = kept.scratch[: _ID_SIZE * count].tobytes()
        skipped = _NOTHING_SKIPPED
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
        """The columns of taken rows, in the window's layout."""
        kept = self._kept
        if layout.size > kept.scratch.size:
            kept.room_in_scratch(layout.size if layout.size > _MOST_SCRATCH else 2 * layout.size)
        self._kernels.copy_rows(kept, ids, layout)
        columns = kept.scratch[: layout.size].tobytes()
        if kept.scratch.size > _MOST_SCRATCH:
            kept.room_in_scratch(_MOST_SCRATCH)
        return columns

    def release(self, taken: TakenRows) -> None:
        """Releases all rows of a window: they are settled."""
        self._kernels.release_rows(self._kept, taken.ids, len(taken.ids) // _ID_SIZE)
        self.takeable = self._kept.state.item(KeepWord.TAKEABLE)


class TakenRows(WindowRows):
    """A window of rows that were taken together. Its records are created on access, its Arrow batch without creating
    any; both outlive the release. Rows `skipped` for a newer row of their key are not included."""

    __slots__ = ("_records", "_rows", "columns", "headers", "ids", "layout", "skipped")

    def __init__(self, rows: KeyedRows, ids: bytes, skipped: Packed, layout: WindowLayout, columns: bytes) -> None:
        self.ids: Final = ids  # of all taken rows
        self.skipped: Final = skipped  # the offsets of skipped rows
        self.layout: Final = layout
        self.columns: Final = columns
        self.headers: list[Headers] | None = None  # None if no row has headers
        self._rows = rows
        self._records: list[Record] | None = None

    def __len__(self) -> int:
        return self.layout.rows

    @property
    def offsets(self) -> list[int]:
        return memoryview(self.columns)[: self.layout.timestamps].cast("q").tolist()

    def packed_offsets(self) -> Packed:
        return Packed(self.columns, len(self))  # the offsets come first

    def reach(self) -> tuple[int, int]:
        offsets = self.offsets
        return min(offsets), max(offsets)

    @property
    def records(self) -> list[Record]:
        if self._records is None:
            self._records = self._create_records()
        return self._records

    @property
    def topic(self) -> str:
        return self._rows.topic

    @property
    def partition(self) -> int:
        return self._rows.partition

    @property
    def key_bitmap(self) -> bytes | None:
        """None if no key is null."""
        return self._bitmap(self.layout.bitmaps)

    @property
    def value_bitmap(self) -> bytes | None:
        return self._bitmap(self.layout.bitmaps + self.layout.bitmap_size)

    def _bitmap(self, at: int) -> bytes | None:
        bits = self.columns[at : at + self.layout.bitmap_size]
        return bits if int.from_bytes(bits, "little") != (1 << self.layout.rows) - 1 else None

    def _create_records(self) -> list[Record]:
        """With C loops only, as for the records of a block."""
        layout, columns = self.layout, self.columns
        view = memoryview(columns)
        ends = view[layout.ends : layout.small].cast("i").tolist()
        headers = self.headers
        fields = zip(
            repeat(self.topic),
            repeat(self.partition),
            self.offsets,
            view[layout.timestamps : layout.ends].cast("q").tolist(),
            columns[layout.small : layout.bitmaps],
            _contents(columns, layout.content, ends[: layout.rows + 1], self.key_bitmap),
            _contents(columns, layout.values, ends[layout.rows + 1 :], self.value_bitmap),
            repeat(()) if headers is None else headers,
            strict=False,  # the repeated columns are endless
        )
        return list(map(tuple.__new__, repeat(Record), fields))

    def batch(self) -> pa.RecordBatch:
        """Plain columns that keep nothing else alive."""
        return _to_batch()(self)


@cache
def _to_batch() -> Callable[[TakenRows], pa.RecordBatch]:
    """Imports Arrow on first use, and only once: even a repeated import costs time in every window."""
    from multilane.wire.records.window_arrow import window_batch

    return window_batch


def _contents(columns: bytes, start: int, ends: list[int], bitmap: bytes | None) -> Sequence[bytes | None]:
    first, last = ends[1], ends[-1]
    if bitmap is None and first and ends == [*range(0, last + 1, first)]:
        equal: tuple[bytes, ...] = _equal_sizes(first, len(ends) - 1).unpack_from(columns, start)
        return equal
    content = columns[start : start + last]
    contents: list[bytes | None] = [content[a:b] for a, b in pairwise(ends)]
    if bitmap is None:
        return contents
    return [one if bitmap[i // 8] >> i % 8 & 1 else None for i, one in enumerate(contents)]


@lru_cache(256)
def _equal_sizes(size: int, count: int) -> Struct:
    """Keys often have equal sizes: then all are cut at once, in a fifth of the time."""
    return Struct(f"{size}s" * count)
