"""The kernels run by numba itself, which can check every index: for tests.

Thread: any, as in `kernels`.
Compiled on import, for exactly these types, or loaded from numba's own cache.
"""

# mypy: disable-error-code="no-untyped-call, untyped-decorator"

from __future__ import annotations

from numba import int64, njit, types, uint8, uint64, void

from multilane.wire.records import kernels, lz4_kernels, sum_kernels
from multilane.wire.records.keyed_checked import CheckedKeyed

_BYTES = types.Array(uint8, 1, "C", readonly=True)  # writable arrays match too
_OUT = types.Array(uint8, 1, "C")
_COLUMN = int64[::1]
_MATRIX = int64[:, ::1]
_VIEWS = uint64[:, ::1]
_COLUMNS = types.Tuple((_COLUMN, _COLUMN, _VIEWS, _VIEWS, _COLUMN))

scan_headers = njit(types.UniTuple(int64, 3)(_BYTES, int64, int64, _MATRIX), cache=True)(kernels.scan_headers.py_func)
decode_batches = njit(
    void(_BYTES, _BYTES, uint64, _MATRIX, int64, int64, _COLUMNS, _COLUMN, _COLUMN), nogil=True, cache=True
)(kernels.decode_batches.py_func)
mark_nulls = njit(void(_VIEWS, _OUT), nogil=True, cache=True)(kernels.mark_nulls.py_func)
gather_headers = njit(int64(_BYTES, _BYTES, _COLUMN, _OUT, _COLUMN), nogil=True, cache=True)(
    kernels.gather_headers.py_func
)
unlz4 = njit(types.UniTuple(int64, 3)(_BYTES, _MATRIX, _OUT, int64, _MATRIX, int64), nogil=True, cache=True)(
    lz4_kernels.unlz4.py_func
)
keyed = CheckedKeyed()
check_sums = njit(int64(_BYTES, _MATRIX, int64, int64), nogil=True, cache=True)(sum_kernels.check_sums.py_func)
