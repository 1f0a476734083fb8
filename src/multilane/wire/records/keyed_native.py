"""The kernels of kept rows as machine code, called with addresses.

Thread: one at a time for each storage; they keep the GIL.
Owns: the translation from storage and blocks to addresses. Never: checks its arguments; `keyed_kernels` documents each
function and its arguments.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from multilane.wire.records.keyed_storage import Flagged, Packed, Source, Storage, address_of
from multilane.wire.records.window_layout import WindowLayout

_ADDRESS: Final = ctypes.c_void_p
_INT: Final = ctypes.c_int64
_IDS: Final = ctypes.c_char_p  # the numbers of taken rows, as bytes
_STORAGE: Final = (_ADDRESS,) * 5  # state, rows, chains, table, ready


class NativeKeyed:
    def __init__(self, addresses: Mapping[str, int]) -> None:
        address, number = _ADDRESS, _INT

        def function(name: str, result: Any, *arguments: Any) -> Any:
            return ctypes.PYFUNCTYPE(result, *arguments)(addresses[name])

        bytes_ = (address, number)
        columns = (address, address, *bytes_, address, address, number)
        self._keep = function("keep_rows", number, *_STORAGE, number, *bytes_, *columns, *bytes_ * 5, number, number)
        self._take = function("take_rows", number, *(address,) * 4, number, address, number, number)
        self._copy = function("copy_rows", None, address, number, *bytes_, _IDS, number, address, address, *bytes_ * 2)
        self._split = function("split_newest", number, address, address, number, _IDS, number, address)
        self._release = function("release_rows", None, *_STORAGE, number, _IDS, number)
        self._clear = function("clear_flags", number, address, address, number, number, _IDS, number)
        self._move = function("move_rows", None, address, address, number, *bytes_ * 2)
        self._index = function("index_chains", None, *(address,) * 4, number)

    def keep_rows(self, kept: Storage, source: Source, fresh: Any, start: int, stop: int) -> int:
        wanted = (0, 0) if fresh is None else (address_of(fresh), fresh.size)
        row: int = self._keep(
            *kept.addresses,
            kept.capacity,
            kept.arena_at,
            kept.arena.size,
            *source.words,
            *wanted,
            start,
            stop,
        )
        return row

    def take_rows(self, kept: Storage, most: int, most_chains: int) -> int:
        state, rows, chains, _, ready = kept.addresses
        taken: int = self._take(state, rows, chains, ready, kept.capacity, kept.scratch_at, most, most_chains)
        return taken

    def copy_rows(self, kept: Storage, ids: bytes, layout: WindowLayout) -> None:
        at, arena = kept.scratch_at, (kept.arena_at, kept.arena.size)
        self._copy(
            kept.addresses[1],
            kept.capacity,
            *arena,
            ids,
            layout.rows,
            at,
            at + layout.ends,
            at + layout.small,
            layout.content - layout.small,
            at + layout.content,
            layout.size - layout.content,
        )

    def split_newest(self, kept: Storage, ids: bytes, count: int) -> int:
        state, rows = kept.addresses[:2]
        newest: int = self._split(state, rows, kept.capacity, ids, count, kept.scratch_at)
        return newest

    def release_rows(self, kept: Storage, ids: bytes, count: int) -> None:
        self._release(*kept.addresses, kept.capacity, ids, count)

    def clear_flags(self, flagged: Flagged, first: int, last: int, wanted: Packed) -> int:
        index: int = self._clear(*flagged.addresses, first, last, wanted.content, len(wanted))
        return index

    def move_rows(self, kept: Storage, old: npt.NDArray[np.uint8]) -> None:
        addresses = (address_of(old), old.size, kept.arena_at, kept.arena.size)
        self._move(kept.addresses[0], kept.addresses[1], kept.capacity, *addresses)

    def index_chains(self, kept: Storage) -> None:
        self._index(*kept.addresses[:4], kept.capacity)
