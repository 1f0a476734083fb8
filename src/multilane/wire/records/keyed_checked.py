"""The kernels of kept rows run by numba itself, which can check every index: for tests.

Thread: one at a time for each storage.
Compiled on import, for exactly these types, or loaded from numba's own cache.
"""

# mypy: disable-error-code="no-untyped-call, untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import int32, int64, njit, types, uint8, uint64, void

from multilane.wire.records import keyed_kernels
from multilane.wire.records.keyed_storage import Flagged, Packed, Source, Storage
from multilane.wire.records.window_layout import WindowLayout

_BYTES = types.Array(uint8, 1, "C", readonly=True)  # writable arrays match too
_IDS = types.Array(int64, 1, "C", readonly=True)
_OUT = types.Array(uint8, 1, "C")
_COLUMN = int64[::1]
_MATRIX = int64[:, ::1]
_VIEWS = uint64[:, ::1]
_BLOCK = types.Tuple((_COLUMN, _COLUMN, _MATRIX, _VIEWS, _VIEWS))
_TWO = types.UniTuple(_BYTES, 2)
_NO_BYTES = np.empty(0, np.uint8)
_NO_BYTES.flags.writeable = False

_keep = njit(
    int64(_COLUMN, _MATRIX, _MATRIX, _COLUMN, _COLUMN, _OUT, _BLOCK, _TWO, _TWO, _BYTES, int64, int64), cache=True
)(keyed_kernels.keep_rows.py_func)
_take = njit(int64(_COLUMN, _MATRIX, _MATRIX, _COLUMN, _COLUMN, int64), cache=True)(keyed_kernels.take_rows.py_func)
_copy = njit(void(_MATRIX, _BYTES, _IDS, _MATRIX, int32[:, ::1], _OUT, _OUT), cache=True)(
    keyed_kernels.copy_rows.py_func
)
_split = njit(int64(_COLUMN, _MATRIX, _IDS, _COLUMN), cache=True)(keyed_kernels.split_newest.py_func)
_release = njit(void(_COLUMN, _MATRIX, _MATRIX, _COLUMN, _COLUMN, _IDS), cache=True)(keyed_kernels.release_rows.py_func)
_clear = njit(int64(_COLUMN, _OUT, int64, int64, _IDS), cache=True)(keyed_kernels.clear_flags.py_func)
_move = njit(void(_COLUMN, _MATRIX, _BYTES, _OUT), cache=True)(keyed_kernels.move_rows.py_func)
_index = njit(void(_COLUMN, _MATRIX, _MATRIX, _COLUMN), cache=True)(keyed_kernels.index_chains.py_func)


def _numbers(ids: bytes) -> npt.NDArray[np.int64]:
    return np.frombuffer(ids, np.int64)


def _words(kept: Storage, count: int) -> npt.NDArray[np.int64]:
    return kept.scratch[: 8 * count].view(np.int64)


def _frozen(array: npt.NDArray[Any] | None) -> npt.NDArray[np.uint8]:
    if array is None:
        return _NO_BYTES
    view = array.view(np.uint8)
    view.flags.writeable = False
    return view


class CheckedKeyed:
    """The same functions as `NativeKeyed`."""

    def keep_rows(self, kept: Storage, source: Source, fresh: Any, start: int, stop: int) -> int:
        columns = source.columns
        given = (columns.offsets, columns.timestamps, source.segments, columns.keys, columns.values)
        nulls = (_frozen(columns.key_valid), _frozen(columns.value_valid))
        padded = (*columns.buffers, None, None)
        buffers = (_frozen(padded[0]), _frozen(padded[1]))
        arrays = (kept.state, kept.rows, kept.chains, kept.table, kept.ready, kept.arena)
        return int(_keep(*arrays, given, nulls, buffers, _frozen(fresh), start, stop))

    def take_rows(self, kept: Storage, most: int, most_chains: int) -> int:
        return int(_take(kept.state, kept.rows, kept.chains, kept.ready, _words(kept, most), most_chains))

    def copy_rows(self, kept: Storage, ids: bytes, layout: WindowLayout) -> None:
        facts = _words(kept, 2 * layout.rows).reshape(2, layout.rows)
        ends = kept.scratch[layout.ends : layout.small].view(np.int32).reshape(2, layout.rows + 1)
        small = kept.scratch[layout.small : layout.content]
        content = kept.scratch[layout.content : layout.size]
        _copy(kept.rows, kept.arena, _numbers(ids), facts, ends, small, content)

    def split_newest(self, kept: Storage, ids: bytes, count: int) -> int:
        return int(_split(kept.state, kept.rows, _numbers(ids), _words(kept, count)))

    def release_rows(self, kept: Storage, ids: bytes, count: int) -> None:
        _release(kept.state, kept.rows, kept.chains, kept.table, kept.ready, _numbers(ids)[:count])

    def clear_flags(self, flagged: Flagged, first: int, last: int, wanted: Packed) -> int:
        return int(_clear(flagged.values, flagged.flags, first, last, wanted.column()))

    def move_rows(self, kept: Storage, old: npt.NDArray[np.uint8]) -> None:
        _move(kept.state, kept.rows, old, kept.arena)

    def index_chains(self, kept: Storage) -> None:
        _index(kept.state, kept.rows, kept.chains, kept.table)
