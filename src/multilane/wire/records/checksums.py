"""Verifies the checksums of a span: CRC32C, with google-crc32c.

Thread: decoder, or network for small frames.
Owns: the lookup of the checksum function. The library's Python function keeps the GIL, at 10 GB/s: two milliseconds for
a 16 MB span, in which the network thread receives nothing. So a kernel calls the underlying C function without the GIL,
for all batches in one call. If that function is not found (in another build of the library), the Python function is
used. Never: decides the consequences of a wrong checksum.
"""

from __future__ import annotations

import ctypes
import importlib
from functools import lru_cache
from typing import Final

import google_crc32c

from multilane.wire.records.arrays import Bytes, Ints
from multilane.wire.records.layout import CRC_START, RowWord
from multilane.wire.records.loading import kernels

_SELF_TEST: Final = (b"123456789", 0xE3069283)


def first_wrong(data: Bytes, rows: Ints, floor: int) -> int | None:
    """The first of these batches whose checksum does not match; batches that end below `floor` are not checked."""
    function = _function()
    if function is None:
        return _in_python(data, rows, floor)
    index: int = kernels().check_sums(data, rows, floor, function)
    return None if index < 0 else index


def _in_python(data: Bytes, rows: Ints, floor: int) -> int | None:
    columns = [RowWord.POSITION, RowWord.LENGTH, RowWord.CRC, RowWord.BASE_OFFSET, RowWord.LAST_DELTA]
    for index, (position, length, crc, base, delta) in enumerate(rows[:, columns].tolist()):
        # google-crc32c takes arrays, but not memoryviews.
        if base + delta >= floor and google_crc32c.value(data[position + CRC_START : position + length]) != crc:
            return index
    return None


@lru_cache(1)
def _function() -> int | None:
    """The address of the library's C function, if it exists and passes a self-test."""
    try:
        extension = importlib.import_module("google_crc32c._crc32c")
        function = ctypes.CDLL(extension.__file__).crc32c_value
    except (ImportError, OSError, AttributeError):
        return None
    function.argtypes, function.restype = (ctypes.c_char_p, ctypes.c_size_t), ctypes.c_uint32
    content, expected = _SELF_TEST
    return ctypes.cast(function, ctypes.c_void_p).value if function(content, len(content)) == expected else None
