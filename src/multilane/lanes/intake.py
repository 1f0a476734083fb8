"""Takes the blocks of one partition into the chains, in pieces, as lanes need them.

Thread: loop (the owner of the queue).

Owns the blocks that were polled and not taken in yet, and the ledger of the records that were taken in. A block is
taken in piece by piece, and only when lanes are about to need it, so little is held outside its columns. Bounded: at
most `room` records are open at once, and at most `room_bytes` bytes (if set), except that one record always fits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import compress
from math import inf
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from multilane.commit.ledger import Ledger
from multilane.lanes.shared_blocks import made_once
from multilane.logs import logger
from multilane.types import TopicPartition
from multilane.wire.records.block import Block
from multilane.wire.records.made_once import Cut
from multilane.wire.records.record import Record

log = logger(__name__)

PIECE: Final = 256  # small enough to stay in the CPU cache until its records are handled
PIECE_OF_ROWS: Final = 1_024  # larger, because rows are taken in without creating records
PIECE_BYTES: Final = 1024 * 1024  # large records come in smaller pieces
_LEAST_PIECE: Final = 32
_SPARSE: Final = 4  # the rest of a block is copied out if it keeps this many times its size alive


class Waiting(NamedTuple):
    """A block. Its size is computed once: with many small blocks that takes longer than all other work on them."""

    block: Block
    row_bytes: float  # on average
    rows: int


class Piece(NamedTuple):
    """Rows that are taken in together. `fresh` marks those that are not settled already; None if all are fresh."""

    block: Block
    fresh: npt.NDArray[np.bool_] | None
    is_last: bool  # of its block
    cut: Cut | None = None  # of a block that several readers share

    @property
    def offsets(self) -> npt.NDArray[np.int64] | Cut:
        if self.fresh is None:
            return self.block.offsets if self.cut is None else self.cut
        return self.block.offsets[self.fresh]

    def records(self) -> list[Record]:
        if self.fresh is None:
            return list(self.block.records()) if self.cut is None else self.cut.records
        return list(compress(self.block.records(), self.fresh.tolist()))


class Intake:
    def __init__(
        self, partition: TopicPartition, ledger: Ledger, room: int, room_bytes: int | None = None, *, most: int = PIECE
    ) -> None:
        """`most`: rows in a piece."""
        self.partition = partition
        self.ledger = ledger
        self.room = room
        self._room_bytes = room_bytes
        self._bytes = 0
        self._blocks: deque[Waiting] = deque()
        self._row = 0  # of the first block: the rows before it are taken in
        self._most = most
        self._piece = most  # rows, of the first block
        self.bound = inf  # no record from this offset on is taken in
        self.low = inf  # at this position `on_low` is called, to move the bound
        self.on_low: Callable[[], object] = lambda: None
        self.changes = 0  # see `AtRest`
        self.waiting_rows = 0  # not taken in yet
        self.waiting_bytes = 0.0  # the same in bytes; an estimate for a block that is partly taken in

    @property
    def bounds_bytes(self) -> bool:
        return self._room_bytes is not None

    @property
    def has_blocks(self) -> bool:
        return bool(self._blocks)

    @property
    def is_at_rest(self) -> bool:
        """Whether all records that came are settled."""
        return not self._blocks and not self.ledger.count()

    @property
    def end(self) -> int:
        """The offset after the last block."""
        return self._blocks[-1].block.next_offset if self._blocks else self.ledger.position

    @property
    def next_offset(self) -> int:
        """The offset of the first record that is not taken in, as far as it is known."""
        if not self._blocks:
            return self.ledger.position
        block = self._blocks[0].block
        return int(block.offsets[self._row]) if self._row else block.first_offset

    def frontier(self) -> int:
        """Everything below is settled."""
        return self.ledger.frontier

    def pass_to(self, position: int, leader_epoch: int) -> None:
        """The log has no records for us below this position. Call it only when no record is open or waits."""
        if position > self.ledger.position:
            self.ledger.advance(position, leader_epoch)
            self.changes += 1

    @property
    def is_full(self) -> bool:
        """Whether the room is too small for a piece: taking in one record costs as much as taking in thirty."""
        least = max(1, min(_LEAST_PIECE, self.room // 8))  # of the current room: the number of lanes may change
        too_many = self.room - self.ledger.count() < least
        if self.bound != inf and self._blocks and self.next_offset >= self.bound:
            self.on_low()
            return True
        return too_many or (self._room_bytes is not None and self._bytes > self._room_bytes - self._room_bytes // 8)

    @property
    def open_bytes(self) -> int:
        return self._bytes

    def accept(self, block: Block) -> None:
        if block.made is None and self.room < self._most and len(block) > self.room:
            block = made_once(block)  # more records at a time than its pieces have, and for all groups that read them
        row_bytes = block.own_bytes / max(1, len(block)) if block.made is None else block.made.row_bytes
        self.put(Waiting(block, row_bytes, len(block)))

    def put(self, waiting: Waiting) -> None:
        """The same for a block that several intakes get."""
        self._blocks.append(waiting)
        self.waiting_rows += waiting.rows
        self.waiting_bytes += waiting.row_bytes * waiting.rows
        self.changes += 1  # last: others may look
        if len(self._blocks) == 1:
            self._measure()

    def _measure(self) -> None:
        _, row_bytes, rows = self._blocks[0]
        is_small = row_bytes * rows <= PIECE_BYTES
        self._piece = self._most if is_small else max(1, min(self._most, int(PIECE_BYTES / max(1.0, row_bytes))))

    def copy_out(self) -> None:
        """Copy blocks that will wait for a long time, so that they do not keep whole frames alive."""
        if self._row:
            block, row_bytes, rows = self._blocks[0]
            self._blocks[0] = Waiting(block.slice(self._row), row_bytes, rows - self._row)
            self._row = 0
        for index, (block, row_bytes, rows) in enumerate(self._blocks):
            if block.pinned_bytes > _SPARSE * rows * row_bytes:
                self._blocks[index] = Waiting(block.compact(), row_bytes, rows)

    def next_piece(self) -> Piece:
        """Takes in the next few rows. Those that are fresh are handed out and must be settled."""
        (block, row_bytes, total), row = self._blocks[0], self._row
        many = min(self._piece, self.room - self.ledger.count(), total - row)
        if self._room_bytes is not None:
            many = min(many, block.slice(row).rows_within(self._room_bytes - self._bytes, many))
        if block.next_offset > self.bound:
            many = min(many, int(block.offsets.searchsorted(self.bound)) - row)
        cut = None if block.made is None else block.made.cut(block, row, row + many)
        rows = block.slice(row, row + many) if cut is None else cut.block
        self.waiting_rows -= many
        self.waiting_bytes = self.waiting_bytes - many * row_bytes if self.waiting_rows else 0.0
        self._row += many
        is_last = self._row == total
        if is_last:
            self._row = 0
            self._blocks.popleft()
            if self._blocks:
                self._measure()
        piece = Piece(rows, self._fresh(rows) if self.ledger.done else None, is_last, cut)
        self.ledger.hand_out(piece.offsets)
        self.ledger.advance(rows.next_offset, rows.leader_epoch)
        if self.ledger.position >= self.low:
            self.on_low()
        self.changes += 1  # again: for a moment nothing was open
        if self._room_bytes is not None:
            self._bytes += rows.content_bytes if piece.fresh is None else sum(map(size_of, piece.records()))
        return piece

    def _fresh(self, rows: Block) -> npt.NDArray[np.bool_] | None:
        """A log may be truncated after the completion map was checked: its new records have a newer epoch then."""
        fresh = self.ledger.fresh(rows.offsets)
        if fresh is None:
            return None
        claimed = int(np.searchsorted(rows.offsets, self.ledger.done_until))  # rows below the end of the map
        if not self.ledger.contradicts(rows.epoch_at(claimed - 1)):
            return fresh
        log.warning(
            "%s: the log was truncated at offset %d or later and has different records now. The completion map up to "
            "offset %d is ignored, and its records are redelivered",
            *(self.partition, rows.first_offset, self.ledger.done_until),
        )
        self.ledger.forget_done()
        return None

    def settle(self, record: Record) -> None:
        self.ledger.settle(record.offset)
        if self._room_bytes is not None:
            self._bytes -= size_of(record)


def size_of(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")
