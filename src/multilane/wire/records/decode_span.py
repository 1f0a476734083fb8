"""A span of record batches while it is decoded, and the options for it.

Thread: decoder.
Owns: the batches that are still good, their decompressed records, and the error that ends them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from multilane.errors import RecordBatchError
from multilane.wire.records.arrays import Bytes, Ints
from multilane.wire.records.codecs import Arena, Memory, fresh_memory
from multilane.wire.records.layout import HEADER_SIZE, MAX_BUFFER_BYTES, RowWord

_MB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """`max_block_bytes` bounds a whole span: decompressed records and columns together.

    Without it a block may have four of the largest batches, and at least 256 MB. `memory` allocates columns and
    decompressed records.
    """

    check_crc: bool = True
    read_committed: bool = False
    max_decompressed_bytes: int = 64 * _MB
    max_block_bytes: int | None = None
    memory: Memory = fresh_memory

    @property
    def block_limit(self) -> int:
        wanted = self.max_block_bytes
        if wanted is None:
            wanted = max(256 * _MB, 4 * self.max_decompressed_bytes)
        return min(wanted, MAX_BUFFER_BYTES)


@dataclass(slots=True)
class DecodeSpan:
    """The batches that are still good, and the error that ends the list."""

    frame: Bytes
    rows: Ints
    error: RecordBatchError | None
    arena: Arena

    def cut(self, index: int, error: RecordBatchError) -> None:
        """Batch `index` is bad: keeps only those before it."""
        self.rows = self.rows[:index]
        self.error = at_offset(error, error.offset)

    def payload(self, batch: int) -> Bytes:
        position, length = int(self.rows[batch, RowWord.POSITION]), int(self.rows[batch, RowWord.LENGTH])
        return self.frame[position + HEADER_SIZE : position + length]

    def base(self, batch: int) -> int:
        return int(self.rows[batch, RowWord.BASE_OFFSET])


def at_offset(error: RecordBatchError, offset: int) -> RecordBatchError:
    """A new error of the same kind. The traceback of a raised error references the frame and its decompressed data, in
    a cycle with the object that stores the error: only the garbage collector would free this memory."""
    return type(error)(error.reason, offset=offset)
