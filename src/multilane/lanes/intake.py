"""The way of one partition's blocks into the chains, in pieces, as they are wanted.

Thread: loop (whoever owns the yard).

Owns the blocks that were polled and not taken in yet, and the ledger of what was. A block is taken in only a piece at a
time and only when lanes are about to want it, so what is held outside of its columns stays small. Bounded: no more than
`room` records are open at once, and no more than `room_bytes` bytes of them where that is set, but for the last record.
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
from multilane.logs import logger
from multilane.types import TopicPartition
from multilane.wire.records.block import Block
from multilane.wire.records.record import Record

log = logger(__name__)

PIECE: Final = 256  # small enough to stay in the processor's cache between being made and being handled
PIECE_OF_ROWS: Final = 1_024  # of which nothing is made when they are taken in
PIECE_BYTES: Final = 1024 * 1024  # large records come in smaller pieces
_LEAST_PIECE: Final = 32
_SPARSE: Final = 4  # what is left of a block is copied out when it keeps this many times its size alive


class Waiting(NamedTuple):
    """A block, or what is left of it. Its size is asked for once: with many small blocks that takes longer than all
    that is done with them."""

    block: Block
    row_bytes: float  # on average


class Piece(NamedTuple):
    """Rows that are taken in together. `fresh` tells which of them are not settled already, None when all are fresh."""

    block: Block
    fresh: npt.NDArray[np.bool_] | None
    is_last: bool  # of its block

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        offsets = self.block.offsets
        return offsets if self.fresh is None else offsets[self.fresh]

    def records(self) -> list[Record]:
        records = self.block.records()
        return list(records if self.fresh is None else compress(records, self.fresh.tolist()))


class Intake:
    def __init__(
        self, partition: TopicPartition, ledger: Ledger, room: int, room_bytes: int | None = None, *, most: int = PIECE
    ) -> None:
        """`most` rows are a piece."""
        self.partition = partition
        self.ledger = ledger
        self.room = room
        self._room_bytes = room_bytes
        self._bytes = 0
        self._blocks: deque[Waiting] = deque()
        self._most = most
        self._piece = most  # rows, of the first block
        self.bound = inf  # nothing from this offset on is taken in
        self.low = inf  # when the position is here somebody has to move the bound
        self.on_low: Callable[[], object] = lambda: None
        self.waiting_rows = 0  # not taken in yet
        self.waiting_bytes = 0.0  # the same in bytes; of a block that is taken in by pieces an estimate

    @property
    def weighs(self) -> bool:
        return self._room_bytes is not None

    @property
    def has_blocks(self) -> bool:
        return bool(self._blocks)

    @property
    def end(self) -> int:
        """The offset behind all that came."""
        return self._blocks[-1].block.next_offset if self._blocks else self.ledger.position

    @property
    def next_offset(self) -> int:
        """Of the first record that is not taken in, as far as it is known."""
        return self._blocks[0].block.first_offset if self._blocks else self.ledger.position

    def frontier(self) -> int:
        """Everything below is settled."""
        return self.ledger.frontier

    def pass_to(self, position: int, leader_epoch: int) -> None:
        """The log has nothing for us below: said when nothing is open or waits."""
        if position > self.ledger.position:
            self.ledger.advance(position, leader_epoch)

    @property
    def is_full(self) -> bool:
        """There is no room for a piece that is worth it: to take in one record costs as much as to take in thirty."""
        least = max(1, min(_LEAST_PIECE, self.room // 8))  # of the room as it is now: lanes may be fewer than before
        too_many = self.room - len(self.ledger) < least
        if self.bound != inf and self._blocks and self.next_offset >= self.bound:
            self.on_low()
            return True
        return too_many or (self._room_bytes is not None and self._bytes > self._room_bytes - self._room_bytes // 8)

    @property
    def open_bytes(self) -> int:
        return self._bytes

    def accept(self, block: Block) -> None:
        size = block.own_bytes
        self._blocks.append(Waiting(block, size / max(1, len(block))))
        self.waiting_rows += len(block)
        self.waiting_bytes += size
        if len(self._blocks) == 1:
            self._measure()

    def _measure(self) -> None:
        self._piece = max(1, min(self._most, int(PIECE_BYTES / max(1.0, self._blocks[0].row_bytes))))

    def copy_out(self) -> None:
        """What waits here for long must not keep the whole frame alive that it came with."""
        for at, (block, row_bytes) in enumerate(self._blocks):
            if block.pinned_bytes > _SPARSE * len(block) * row_bytes:
                self._blocks[at] = Waiting(block.compact(), row_bytes)

    def next_piece(self) -> Piece:
        """The next few rows, of which those that are fresh are somebody's work from now on."""
        block, row_bytes = self._blocks[0]
        many = min(self._piece, self.room - len(self.ledger), len(block))
        if self._room_bytes is not None:
            many = min(many, block.rows_within(self._room_bytes - self._bytes, many))
        if block.next_offset > self.bound:
            many = min(many, int(block.offsets.searchsorted(self.bound)))
        rows = block.slice(0, many)
        self.waiting_rows -= many
        self.waiting_bytes = self.waiting_bytes - many * row_bytes if self.waiting_rows else 0.0
        if many == len(block):
            self._blocks.popleft()
            if self._blocks:
                self._measure()
        else:
            self._blocks[0] = Waiting(block.slice(many), row_bytes)
        piece = Piece(rows, self._fresh(rows), is_last=many == len(block))
        self.ledger.hand_out(piece.offsets)
        self.ledger.advance(rows.next_offset, rows.leader_epoch)
        if self.ledger.position >= self.low:
            self.on_low()
        if self._room_bytes is not None:
            self._bytes += rows.content_bytes if piece.fresh is None else sum(map(size_of, piece.records()))
        return piece

    def _fresh(self, rows: Block) -> npt.NDArray[np.bool_] | None:
        """A log may be cut after it was found to have what was settled before: its new records have a newer epoch."""
        fresh = self.ledger.fresh(rows.offsets)
        if fresh is None:
            return None
        claimed = int(np.searchsorted(rows.offsets, self.ledger.done_until))  # rows that the map speaks of
        if not self.ledger.contradicts(rows.epoch_at(claimed - 1)):
            return fresh
        log.warning(
            "%s: the log was truncated at offset %d or later and has different records now. The completion map up to "
            "offset %d is void, and its records are redelivered",
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
