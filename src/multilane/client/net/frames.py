"""Memory of large frames, of what is decompressed out of them and of the columns over both: used again as soon as
nobody looks at it any more.

Thread: any. It is taken on the network thread (frames) and on decoders, and comes back on whichever thread drops the
last block over it, even from within garbage collection: so there is no lock here, only appends and pops that are atomic
by themselves.

A fresh array of megabytes costs a page fault and a cleared page for every four kilobytes, which is half of the network
thread's work on large records. Pages that were received into before cost nothing.

Only so much is kept idle, and only for so long. What comes back when that is full takes the place of what has been idle
for longest: sizes that nobody asks for any more make room for those in use.
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
_KEEP_SECONDS: Final = 10.0  # and up to twice as long: whoever has caught up does not need it
_STEPS_BITS: Final = 3  # sizes differ by an eighth to a quarter


class FramePool:
    def __init__(self, keep_bytes: int = 0) -> None:
        self.keep_bytes = keep_bytes
        self._idle: dict[int, deque[tuple[int, Frame]]] = {}  # by size, each with its turn: the lowest came back first
        self._turns = count()
        self._trim_at = 0.0
        self._last_trim = 0  # the turn of it

    @property
    def idle_bytes(self) -> int:
        return sum(size * len(memories) for size, memories in list(self._idle.items()))

    def take(self, length: int) -> Frame:
        """An array of `length` bytes with any content."""
        if length < _SMALLEST:
            return np.empty(length, np.uint8)
        memory = self._pop(length)
        # Through a memoryview: views of the frame then keep the frame alive, and not only the memory beneath it.
        frame = np.frombuffer(memoryview(memory)[:length], np.uint8)  # type: ignore[arg-type, unused-ignore]
        weakref.finalize(frame, self._come_back, memory).atexit = False
        return frame

    def trim(self, now: float) -> None:
        """Let go of what nobody has asked for in a whole period."""
        if now < self._trim_at:
            return
        self._trim_at = now + _KEEP_SECONDS
        before, self._last_trim = self._last_trim, next(self._turns)
        for memories in list(self._idle.values()):
            with contextlib.suppress(IndexError):  # somebody else has just taken the last one
                while memories[0][0] < before:
                    memories.popleft()

    def _pop(self, length: int) -> Frame:
        """The smallest idle piece that holds it without much waste, or a new one."""
        step = 1 << max(length.bit_length() - _STEPS_BITS, 0)  # few sizes, so that memory fits the next frame too
        size = -(-length // step) * step
        for idle in sorted(list(self._idle)):
            if size <= idle <= size + size // 2:
                try:
                    return self._idle[idle].pop()[1]
                except IndexError:
                    continue
        return np.empty(size, np.uint8)

    def _come_back(self, memory: Frame) -> None:
        if memory.nbytes > self.keep_bytes:
            return
        while self.idle_bytes + memory.nbytes > self.keep_bytes:
            self._drop_oldest()
        self._idle.setdefault(memory.nbytes, deque()).append((next(self._turns), memory))

    def _drop_oldest(self) -> None:
        """Another thread may take the same piece at the same time: then there is room all the same."""
        with contextlib.suppress(IndexError, ValueError):
            min((m for m in list(self._idle.values()) if m), key=lambda memories: memories[0][0]).popleft()
