"""Writes LZ4 frames by hand, good ones and bad ones, for tests."""

from __future__ import annotations

import struct
from functools import lru_cache

import lz4.frame
import numpy as np

from multilane.wire.records.loading import kernels

STORED = 1 << 31
MAGIC = b"\x04\x22\x4d\x18"


def _extended(length: int) -> bytes:
    rest = length - 15
    return b"" if rest < 0 else b"\xff" * (rest // 255) + bytes((rest % 255,))


def sequence(literals: bytes, distance: int | None = None, match: int = 4) -> bytes:
    """Literals, and a copy of `match` bytes from `distance` before."""
    token = min(len(literals), 15) << 4 | (0 if distance is None else min(match - 4, 15))
    head = bytes((token,)) + _extended(len(literals)) + literals
    return head if distance is None else head + struct.pack("<H", distance) + _extended(match - 4)


@lru_cache
def header_sum(descriptor: bytes) -> int:
    """What the library accepts there: nothing of ours computes it."""
    for guess in range(256):
        try:
            lz4.frame.get_frame_info(MAGIC + descriptor + bytes((guess,)))
        except RuntimeError:
            continue
        return guess
    raise ValueError(f"no header with {descriptor.hex()} is right")


def header(flags: int = 0x60, sizes: int = 0x40, more: bytes = b"") -> bytes:
    """Version 1, independent blocks of 64 KB."""
    descriptor = bytes((flags, sizes)) + more
    return MAGIC + descriptor + bytes((header_sum(descriptor),))


def block(content: bytes, mark: int = 0) -> bytes:
    return struct.pack("<I", len(content) | mark) + content


def frame(*blocks: bytes, head: bytes | None = None, tail: bytes = bytes(4)) -> bytes:
    return (header() if head is None else head) + b"".join(blocks) + tail


def unlz4(*frames: bytes, room: int, cap: int = 1 << 30) -> tuple[list[bytes], int]:
    """What the kernel makes of them, and why it stopped. What lies around its room must stay as it is."""
    data = np.frombuffer(b"".join(frames) or b"\0", np.uint8)
    ends = np.cumsum([len(f) for f in frames])
    spans = np.stack([ends - [len(f) for f in frames], ends], 1).astype(np.int64)
    places = np.zeros_like(spans)
    memory = np.full(room + 2048, 0xA5, np.uint8)
    done, used, why = kernels().unlz4(data, spans, memory[1024 : 1024 + room], cap, places, 0)
    assert (memory[:1024] == 0xA5).all()
    assert (memory[1024 + room :] == 0xA5).all()
    assert used <= room
    assert used == (places[done - 1, 1] if done else 0)
    return [memory[1024 + start : 1024 + end].tobytes() for start, end in places[:done].tolist()], why
