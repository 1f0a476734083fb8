"""Reuses the memory of large frames, of their decompressed content and of the columns over both.

Thread: any. The network thread (frames) and decoders take memory. It returns on the thread that drops the last block
over it, even during garbage collection. So there is no lock here, only appends and pops, which are atomic.

A fresh array of megabytes costs a page fault and a cleared page for every four kilobytes, half of the network thread's
work on large records. Reused pages cost nothing.

Owns the idle memory, limited in size and age. When the limit is reached, returned memory replaces the memory that has
been idle for longest, so that unused sizes make room for those in use.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from itertools import count
from typing import Final

import numpy as np

from multilane.wire.framing import Frame

_SMALLEST: Final = 1 << 20  # below this the allocator itself keeps memory at hand
_KEEP_SECONDS: Final = 10.0  # and up to twice as long: a consumer that has caught up does not need it
_STEPS_BITS: Final = 3  # sizes differ by an eighth to a quarter


class FramePool:
    def __init__(self, keep_bytes: int = 0) -> None:
        self.keep_bytes = keep_bytes
        self._idle: dict[int, deque[tuple[int, Frame]]] = {}  # by size, each with its turn: the lowest is the oldest
        self._turns = count()
        self._trim_at = 0.0
        self._last_trim = 0  # the turn of the last trim

    @property
    def idle_bytes(self) -> int:
        return sum(size * len(memories) for size, memories in list(self._idle.items()))

    def take(self, length: int) -> Frame:
        """An array of `length` bytes with arbitrary content."""
        if length < _SMALLEST:
            return np.empty(length, np.uint8)
        memory = self._pop(length)
        # Through a memoryview, so that views keep the frame alive and not only the memory beneath it.
        frame = np.frombuffer(memoryview(memory)[:length], np.uint8)  # type: ignore[arg-type, unused-ignore]
        weakref.finalize(frame, self._give_back, memory).atexit = False
        return frame

    def trim(self, now: float) -> None:
        """Release memory that was idle for a whole period."""
        if now < self._trim_at:
            return
        self._trim_at = now + _KEEP_SECONDS
        before, self._last_trim = self._last_trim, next(self._turns)
        for memories in list(self._idle.values()):
            with contextlib.suppress(IndexError):  # another thread has just taken the last one
                while memories[0][0] < before:
                    memories.popleft()

    def _pop(self, length: int) -> Frame:
        """The smallest idle array that fits without much waste, or a new one."""
        step = 1 << max(length.bit_length() - _STEPS_BITS, 0)  # few sizes, so that memory fits the next frame too
        size = -(-length // step) * step
        for idle in sorted(list(self._idle)):
            if size <= idle <= size + size // 2:
                try:
                    return self._idle[idle].pop()[1]
                except IndexError:
                    continue
        return np.empty(size, np.uint8)

    def _give_back(self, memory: Frame) -> None:
        if memory.nbytes > self.keep_bytes:
            return
        while self.idle_bytes + memory.nbytes > self.keep_bytes:
            self._drop_oldest()
        self._idle.setdefault(memory.nbytes, deque()).append((next(self._turns), memory))

    def _drop_oldest(self) -> None:
        """Another thread may take the same array at the same time, which makes room as well."""
        with contextlib.suppress(IndexError, ValueError):
            min((m for m in list(self._idle.values()) if m), key=lambda memories: memories[0][0]).popleft()
