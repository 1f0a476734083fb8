"""The memory of kept rows: its arrays, their addresses, and its growth.

Thread: one owner.
Owns: the arrays. Each address is looked up once: asking numpy takes longer than most kernels. Never: shrinks, except
for the arena, which is sized for the live rows whenever they move.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from multilane.wire.records.block import Columns
from multilane.wire.records.layout import CHAIN_COLUMNS, KEEP_SIZE, KEPT_COLUMNS, KeepWord

_FIRST_ROWS: Final = 256  # a power of two, like all sizes of tables and rings
_FIRST_BYTES: Final = 1 << 14


def address_of(array: npt.NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class Source:
    """The columns behind blocks, and their addresses. Several blocks may share one source."""

    __slots__ = ("columns", "segments", "words")

    def __init__(self, columns: Columns) -> None:
        self.columns: Final = columns
        self.segments: Final = np.ascontiguousarray(columns.segments)
        reach = len(columns.offsets)
        bitmaps = (_words(columns.key_valid), _words(columns.value_valid))
        padded = (*columns.buffers, None, None)  # short content needs no buffer
        buffers = (_words(padded[0]), _words(padded[1]))
        self.words: Final[tuple[int, ...]] = (
            address_of(columns.offsets),
            address_of(columns.timestamps),
            address_of(self.segments),
            len(columns.segments),
            address_of(columns.keys),
            address_of(columns.values),
            reach,
            *(word for pair in (*bitmaps, *buffers) for word in pair),
        )


def _words(array: npt.NDArray[np.uint8] | None) -> tuple[int, int]:
    """Address and size."""
    return (0, 0) if array is None else (address_of(array), array.size)


class Packed:
    """Numbers of eight bytes each, at the beginning of `content`."""

    __slots__ = ("_count", "content")

    def __init__(self, content: bytes, count: int) -> None:
        self.content: Final = content
        self._count = count

    def __len__(self) -> int:
        return self._count

    def column(self) -> npt.NDArray[np.int64]:
        return np.frombuffer(self.content, np.int64, self._count)


class Flagged:
    """Sorted values, with a flag for each."""

    __slots__ = ("addresses", "flags", "values")

    def __init__(self, room: int) -> None:
        self.values: Final = np.empty(room, np.int64)
        self.flags: Final = np.zeros(room, np.uint8)
        self.addresses: Final = (address_of(self.values), address_of(self.flags))


class Storage:
    __slots__ = (
        "addresses",
        "arena",
        "arena_at",
        "capacity",
        "chains",
        "ready",
        "rows",
        "scratch",
        "scratch_at",
        "state",
        "table",
    )

    def __init__(self, lanes: int) -> None:
        self.state = np.zeros(KEEP_SIZE, np.int64)
        self.state[KeepWord.LANES] = lanes
        self.state[KeepWord.SECRET : KeepWord.SECRET + 2] = secrets.randbits(63), secrets.randbits(63)
        self.state[KeepWord.FREE_ROW] = self.state[KeepWord.FREE_CHAIN] = -1
        self.rows = np.empty((0, KEPT_COLUMNS), np.int64)
        self.chains = np.empty((0, CHAIN_COLUMNS), np.int64)
        self.ready = np.empty(0, np.int64)
        self.table = np.empty(0, np.int64)
        self._set_arena(_FIRST_BYTES)
        self.room_in_scratch(_FIRST_BYTES)
        self.double_rows()

    def double_rows(self) -> None:
        """Rows and chains keep their numbers. The table is empty afterwards and has to be filled again."""
        old, self.capacity = len(self.rows), max(_FIRST_ROWS, 2 * len(self.rows))
        self.rows = _grown(self.rows, self.capacity)
        self.chains = _grown(self.chains, self.capacity)
        ready = np.empty(self.capacity, np.int64)
        ready[:old] = np.roll(self.ready, -int(self.state[KeepWord.READY_AT]))
        self.state[KeepWord.READY_AT] = 0
        self.ready = ready
        self.table = np.zeros(2 * self.capacity, np.int64)
        arrays = (self.state, self.rows, self.chains, self.table, self.ready)
        self.addresses = tuple(map(address_of, arrays))

    def new_arena(self, more: int) -> npt.NDArray[np.uint8]:
        """Allocates an arena for the live bytes and `more`; returns the old one, whose content has to be moved."""
        old = self.arena
        need = int(self.state[KeepWord.LIVE_BYTES]) + more
        self._set_arena(max(_FIRST_BYTES, 2 * need))
        return old

    def _set_arena(self, size: int) -> None:
        self.arena = np.empty(size, np.uint8)
        self.arena_at = address_of(self.arena)

    def room_in_scratch(self, size: int) -> None:
        self.scratch = np.zeros(size, np.uint8)
        self.scratch_at = address_of(self.scratch)


def _grown(array: npt.NDArray[np.int64], rows: int) -> npt.NDArray[np.int64]:
    longer = np.empty((rows, array.shape[1]), np.int64)
    longer[: len(array)] = array
    return longer
