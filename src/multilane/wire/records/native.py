"""The kernels as machine code, called with arrays.

Thread: any. `scan_headers` keeps the GIL (network thread, microseconds), `check_sums` does for few bytes, all others
release it.
Owns: the translation from arrays to addresses. The caller's arrays live until the call ends; nothing is stored.
Never: checks its arguments; `kernels` documents each function and its arguments.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from multilane.wire.records.keyed_native import NativeKeyed
from multilane.wire.records.layout import RowWord

_ADDRESS: Final = ctypes.c_void_p
_INT: Final = ctypes.c_int64
_WORD: Final = ctypes.c_uint64
_FEW_BYTES: Final = 256 * 1024  # summing them takes less time than reacquiring the GIL may

Array = npt.NDArray[Any]


def _at(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class NativeKernels:
    """The functions of `kernels`, called by the addresses of their machine code."""

    def __init__(self, addresses: Mapping[str, int]) -> None:
        self.keyed = NativeKeyed(addresses)
        address, number = _ADDRESS, _INT
        self._scan = ctypes.PYFUNCTYPE(None, address, number, number, number, address, number, address)(
            addresses["scan_headers"]
        )
        arguments = (address, number, address, number, _WORD, address, number, number, number, *[address] * 5, number)
        self._decode = ctypes.CFUNCTYPE(None, *arguments, address, address)(addresses["decode_batches"])
        self._mark = ctypes.CFUNCTYPE(None, address, number, address, number)(addresses["mark_nulls"])
        self._gather = ctypes.CFUNCTYPE(
            number, address, number, address, number, address, number, address, number, address
        )(addresses["gather_headers"])
        arguments = (number, address, number, address, number, number, number)
        self._sums = ctypes.CFUNCTYPE(*arguments)(addresses["check_sums"])
        self._few_sums = ctypes.PYFUNCTYPE(*arguments)(addresses["check_sums"])
        self._unlz4 = ctypes.CFUNCTYPE(
            None, address, number, address, number, address, number, number, address, number, address
        )(addresses["unlz4"])

    def scan_headers(self, data: Array, start: int, end: int, rows: Array) -> tuple[int, int, int]:
        found = np.zeros(3, np.int64)
        self._scan(_at(data), data.size, start, end, _at(rows), len(rows), _at(found))
        return int(found[0]), int(found[1]), int(found[2])

    def decode_batches(  # noqa: PLR0913, PLR0917 - as many as the kernel has
        self,
        frame: Array,
        arena: Array,
        secret: int,
        plans: Array,
        floor: int,
        largest: int,
        columns: tuple[Array, Array, Array, Array, Array],
        tally: Array,
        state: Array,
    ) -> None:
        self._decode(
            _at(frame),
            frame.size,
            _at(arena),
            arena.size,
            int(secret),
            _at(plans),
            len(plans),
            floor,
            largest,
            *map(_at, columns),
            len(columns[0]),
            _at(tally),
            _at(state),
        )

    def mark_nulls(self, views: Array, bitmap: Array) -> None:
        self._mark(_at(views), len(views), _at(bitmap), bitmap.size)

    def gather_headers(self, first: Array, second: Array, spans: Array, out: Array, moved: Array) -> int:
        used: int = self._gather(
            _at(first), first.size, _at(second), second.size, _at(spans), len(spans), _at(out), out.size, _at(moved)
        )
        return used

    def check_sums(self, data: Array, rows: Array, floor: int, function: int) -> int:
        check = self._sums if rows[:, RowWord.LENGTH].sum() > _FEW_BYTES else self._few_sums
        index: int = check(_at(data), data.size, _at(rows), len(rows), floor, function)
        return index

    def unlz4(self, data: Array, spans: Array, out: Array, cap: int, places: Array, done: int) -> tuple[int, int, int]:
        result = np.zeros(3, np.int64)
        into = _at(out), out.size, cap
        self._unlz4(_at(data), data.size, _at(spans), len(spans), *into, _at(places), done, _at(result))
        return int(result[0]), int(result[1]), int(result[2])
