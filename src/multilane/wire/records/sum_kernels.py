"""The compiled walk over the checksums of a span.

Thread: any; releases the GIL (decoder threads).
Owns: the range of a batch that its checksum covers. Never raises and never allocates (see `kernels`).
Never: computes a checksum: the library's function does, called by its address (see `checksums`).
"""

# ruff: noqa: ANN001, ANN201, ANN202
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, call-arg, unreachable"

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from multilane.wire.records.layout import CRC_START, RowWord

_POSITION, _LENGTH, _CRC = int(RowWord.POSITION), int(RowWord.LENGTH), int(RowWord.CRC)
_BASE_OFFSET, _LAST_DELTA = int(RowWord.BASE_OFFSET), int(RowWord.LAST_DELTA)
_START = int(CRC_START)


@intrinsic
def _checksum(typing, function, data, start, size):
    """Calls the C function at this address for `size` bytes from `start`: uint32_t (const uint8_t *, size_t)."""

    def generate(context, builder, signature, arguments):
        address, array, begin, length = arguments
        memory = context.make_array(signature.args[1])(context, builder, array).data
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(8).as_pointer(), ir.IntType(64)])
        called = builder.inttoptr(address, kind.as_pointer())
        return builder.call(called, [cgutils.pointer_add(builder, memory, begin), length])

    return types.uint32(types.int64, data, types.int64, types.int64), generate


@njit(nogil=True)
def check_sums(data, rows, floor, function):
    """The first batch of `rows` (positions in `data`) with a wrong checksum, or -1; those below `floor` are ignored."""
    for index in range(len(rows)):
        if rows[index, _BASE_OFFSET] + rows[index, _LAST_DELTA] < floor:
            continue
        start, end = rows[index, _POSITION] + _START, rows[index, _POSITION] + rows[index, _LENGTH]
        data[start], data[end - 1]
        if np.int64(_checksum(function, data, start, end - start)) != rows[index, _CRC]:
            return np.int64(index)
    return np.int64(-1)
