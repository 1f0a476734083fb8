"""What several readers of the same rows need of them, made once for all: records, Arrow batches, a compacted copy.

Thread: one owner.

Readers are triggers that share a consumer, and consumers of several groups whose fetches are shared. Each has slices
of the block, in pieces and at a pace of its own. Records are kept by chunk, and only those of the newest chunks: a
reader that is far behind makes its own, so memory stays bounded. Everything goes with the last slice of the block. Owns
what it has made; never changes the block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from multilane.wire.records.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from multilane.wire.records.block import Block

CHUNK_BYTES: Final = 1024 * 1024  # large records come in smaller chunks
_CHUNK_ROWS: Final = 256
_KEPT: Final = 4  # chunks, and pieces
_SMALL_REST: Final = 4  # a rest of fewer than a fourth of the rows is copied alone


class Cut:
    """A piece of the block, as several readers take it."""

    __slots__ = ("_many", "_open", "_records", "block")

    def __init__(self, block: Block) -> None:
        self.block: Final = block
        self._many = len(block)
        self._open: dict[int, None] | None = None
        self._records: list[Record] | None = None

    def __len__(self) -> int:
        return self._many

    def column(self) -> npt.NDArray[np.int64]:
        return self.block.offsets

    @property
    def records(self) -> list[Record]:
        """The caller may change the list."""
        if self._records is None:
            self._records = list(self.block.records())
        return self._records.copy()

    def open_offsets(self) -> dict[int, None]:
        """The offsets as keys: a dict takes them over without looking at each."""
        if self._open is None:
            self._open = dict.fromkeys(self.block.offsets.tolist())
        return self._open


class MadeOnce:
    __slots__ = ("__weakref__", "_batch", "_block", "_chunks", "_compacted", "_cuts", "_rows", "row_bytes")

    def __init__(self, block: Block) -> None:
        """Give it to slices of this block only."""
        self._block = block
        self.row_bytes: Final = block.own_bytes / max(1, len(block))  # on average
        self._rows: Final = max(1, min(_CHUNK_ROWS, int(CHUNK_BYTES / max(1.0, self.row_bytes))))
        self._chunks: dict[int, list[Record]] = {}  # the newest last
        self._cuts: dict[tuple[int, int], Cut] = {}
        self._batch: pa.RecordBatch | None = None
        self._compacted: Block | None = None

    def cut(self, block: Block, start: int, stop: int) -> Cut:
        """Rows [start, stop) of `block`, which is a slice of this one. Most readers take the same pieces."""
        place = block.start + start, block.start + stop
        cut = self._cuts.get(place)
        if cut is None:
            if len(self._cuts) == _KEPT:
                del self._cuts[next(iter(self._cuts))]
            self._cuts[place] = cut = Cut(block.slice(start, stop))
        return cut

    def records(self, start: int, stop: int) -> list[Record]:
        """Of rows [start, stop) of the columns."""
        rows, first = self._rows, self._block.start
        start, stop = start - first, stop - first
        number, begin = divmod(start, rows)
        end = stop - number * rows
        if end <= rows:
            return self._chunk(number)[begin:end]
        found = self._chunk(number)[begin:]
        for later in range(number + 1, (stop - 1) // rows + 1):
            found += self._chunk(later)[: stop - later * rows]
        return found

    def _chunk(self, number: int) -> list[Record]:
        chunk = self._chunks.get(number)
        if chunk is None:
            if len(self._chunks) == _KEPT:
                del self._chunks[next(iter(self._chunks))]
            at = number * self._rows
            self._chunks[number] = chunk = list(self._block.slice(at, at + self._rows).records())
        return chunk

    def batch(self, start: int, stop: int) -> pa.RecordBatch:
        """Rows [start, stop) of the columns as an Arrow batch with plain columns: a slice of one copy."""
        if self._batch is None:
            self._batch = self._block.arrow(copy=True)
        return self._batch.slice(start - self._block.start, stop - start)

    def compacted(self, start: int, stop: int) -> Block | None:
        """Rows [start, stop) of the columns in a copy that all readers share; None if they are too few of it."""
        if _SMALL_REST * (stop - start) < len(self._block):
            return None
        if self._compacted is None:
            self._compacted = self._block.compact().made_once()
        return self._compacted.slice(start - self._block.start, stop - self._block.start)
