"""The pace of a task's calls, so that all tasks of a job together make no more than so many per second.

Thread: loop.

Time is a grid, one moment for each call that all tasks may make, and they take the moments in turn: of three tasks, the
first has every third. A task uses each of its own at most once and those of others never, so no message is needed, and
the limit holds however many tasks run. The price: what a task does not use is lost. Owns the last moment of its task.
"""

from __future__ import annotations

import asyncio
from math import floor

from multilane.clock import Clock


class Pace:
    """What a call waits for before its time begins."""

    def __init__(self, per_second: float, tasks: int, task: int, clock: Clock) -> None:
        """`task`: the number of this one in its stage. In a union the tasks of the others come before it."""
        self._period = tasks / per_second
        self._phase = self._period * (task % tasks) / tasks
        self._clock = clock
        self._offset = clock.wall() - clock.monotonic()  # the grid is the same in all processes, and no clock is set
        self._turn: int | None = None

    def wait(self, now: float) -> float:
        """Take the next moment; returns how long to wait for it. `now` is the monotonic clock's."""
        at = now + self._offset - self._phase
        turn = floor(at / self._period) + 1
        self._turn = turn if self._turn is None else max(turn, self._turn + 1)
        return self._turn * self._period - at

    async def __aenter__(self) -> None:
        deadline = self._clock.monotonic() + self.wait(self._clock.monotonic())
        while (left := deadline - self._clock.monotonic()) > 0:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=left)

    async def __aexit__(self, *_: object) -> None:
        return
