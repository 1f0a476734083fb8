"""Record headers, parsed on access.

Thread: any (pure).
Owns: the format of a header span: byte length (32 bits), buffer (bit 31), position (31 bits); 0 if there are none.
Never: checks bounds. The kernel has walked every span of a block before the block exists.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from multilane.wire.records.record import Headers

_POSITION_MASK = 0x7FFFFFFF


def parse(span: int, buffers: Sequence[npt.NDArray[np.uint8]]) -> Headers:
    """Invalid UTF-8 in a key becomes replacement characters: a header must not stop a partition."""
    if not span:
        return ()
    at = span & _POSITION_MASK
    data = buffers[span >> 31 & 1][at : at + (span >> 32)].tobytes()
    count, at = _varint(data, 0)
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = _varint(data, at)
        key = data[at : at + size].decode("utf-8", "replace")
        at += size
        size, at = _varint(data, at)
        if size < 0:
            found.append((key, None))
        else:
            found.append((key, data[at : at + size]))
            at += size
    return tuple(found)


def compose(headers: Headers) -> bytes:
    """The bytes that `parse` reads; none for no headers."""
    if not headers:
        return b""
    parts = [_zigzag(len(headers))]
    for key, value in headers:
        name = key.encode()
        parts += (_zigzag(len(name)), name, _zigzag(-1 if value is None else len(value)), value or b"")
    return b"".join(parts)


def _zigzag(number: int) -> bytes:
    raw = 2 * number if number >= 0 else -2 * number - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    raw = byte & 0x7F
    shift = 7
    while byte & 0x80:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    return (raw >> 1) ^ -(raw & 1), at
