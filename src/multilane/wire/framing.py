"""Cuts the byte stream of a connection into response frames.

Thread: none (pure); owned by a connection.

Bytes are received into their final array: small frames arrive through a scratch buffer, several at a time; a large
frame gets an array of its own, which receives the rest of it. A length is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import numpy as np

from multilane.wire.messages import check_frame_length

_LENGTH: Final = Struct(">i")
_SCRATCH_BYTES: Final = 64 * 1024

Frame = np.ndarray[Any, np.dtype[np.uint8]]


def _fresh(length: int) -> Frame:
    return np.empty(length, np.uint8)


class FrameAssembler:
    """Fill `target()`, then call `advance(n)` with the number of bytes; it returns the frames that are complete."""

    def __init__(self, cap: int, broker: str, allocate: Callable[[int], Frame] = _fresh) -> None:
        self._cap = cap
        self._allocate = allocate
        self._broker = broker
        self._scratch = np.empty(_SCRATCH_BYTES, np.uint8)
        self._held = 0  # bytes at the front of the scratch buffer that belong to no frame yet
        self._frame: Frame | None = None
        self._filled = 0

    @property
    def missing(self) -> int:
        """How many bytes the current frame still lacks; 0 if unknown."""
        return 0 if self._frame is None else self._frame.nbytes - self._filled

    @property
    def is_empty(self) -> bool:
        return self._frame is None and self._held == 0

    def target(self) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]  # type: ignore[arg-type, unused-ignore]
        return memoryview(self._scratch)[self._held :]  # type: ignore[arg-type, unused-ignore]

    def advance(self, count: int) -> list[Frame]:
        if self._frame is None:
            self._held += count
            return self._cut()
        self._filled += count
        if self._filled < self._frame.nbytes:
            return []
        frame, self._frame = self._frame, None
        return [frame]

    def _cut(self) -> list[Frame]:
        frames: list[Frame] = []
        start = 0
        while self._held - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._scratch, start)  # type: ignore[arg-type, unused-ignore]
            check_frame_length(length, self._cap, self._broker)
            body = start + _LENGTH.size
            if self._held - body < length:
                if length + _LENGTH.size > _SCRATCH_BYTES:
                    self._begin_large(length, body)
                    return frames
                break
            frames.append(self._scratch[body : body + length].copy())
            start = body + length
        rest = self._held - start
        if start and rest:
            self._scratch[:rest] = self._scratch[start : self._held].copy()
        self._held = rest
        return frames

    def _begin_large(self, length: int, body: int) -> None:
        self._frame = self._allocate(length)  # only address space at first: pages are allocated as bytes arrive
        self._filled = self._held - body
        self._frame[: self._filled] = self._scratch[body : self._held]
        self._held = 0
