"""Lanes that wait, for records or for retries that are due.

Thread: loop.

Owns the futures of waiting lanes.
"""

from __future__ import annotations

import asyncio
from collections import deque

from multilane.clock import Clock
from multilane.lanes.threads import NotBegun


class RetryWaits:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: set[asyncio.Future[None]] = set()
        self._is_over = False

    async def until(self, due: float) -> None:
        """Raises NotBegun if the pool drains: the records are not handled any more."""
        if not self._is_over and (left := due - self._clock.monotonic()) > 0:
            rested: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waits.add(rested)
            await asyncio.wait([rested], timeout=left)
            self._waits.discard(rested)
        if self._is_over:
            raise NotBegun

    def end(self) -> None:
        self._is_over = True
        for rested in self._waits:
            if not rested.done():
                rested.set_result(None)


class IdleLanes(deque["asyncio.Future[None]"]):
    """Lanes without work, longest waiting first. A deque itself, because every record tests whether it is empty."""

    async def wait(self) -> None:
        """Wait until woken."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.append(woken)
        await woken

    def wake(self, lanes: int) -> None:
        while lanes > 0 and self:
            woken = self.popleft()
            if not woken.done():
                woken.set_result(None)
                lanes -= 1

    def wake_all(self) -> None:
        self.wake(len(self))
