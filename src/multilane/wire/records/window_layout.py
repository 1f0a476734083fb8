"""The layout of a window's columns in one piece of memory: offsets, timestamps, ends, types, bitmaps, content.

Thread: none (pure values).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class WindowLayout(NamedTuple):
    """Positions in bytes. The offsets come first, then the timestamps."""

    rows: int
    timestamps: int
    ends: int  # of the keys, then of the values: count + 1 each
    small: int  # the types of the timestamps, then the bitmap of the keys, then that of the values
    bitmaps: int
    content: int  # all keys, then all values
    values: int
    size: int

    @property
    def bitmap_size(self) -> int:
        return (self.rows + 7) // 8


def window_layout(rows: int, key_bytes: int, value_bytes: int) -> WindowLayout:
    timestamps, ends, small, bitmaps, content = _of_rows(rows)
    values = content + key_bytes
    return WindowLayout(rows, timestamps, ends, small, bitmaps, content, values, values + value_bytes)


@lru_cache(4_096)
def _of_rows(rows: int) -> tuple[int, int, int, int, int]:
    timestamps = 8 * rows
    ends = 2 * timestamps
    small = ends + 8 * (rows + 1)
    bitmaps = small + rows
    content = bitmaps + 2 * ((rows + 7) // 8)
    return timestamps, ends, small, bitmaps, -(-content // 8) * 8
