"""A lane: one ordered worker inside a partition, and the state of its current call.

Thread: loop.

Owns only the state that its pool and the sweep for overdue calls read. A lane counts its calls instead of reading the
clock for each: the sweep remembers since when it has seen the same count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any

from multilane.clock import Clock
from multilane.lanes.acknowledging import Pending
from multilane.wire.records.record import Record


class Lane:
    __slots__ = (
        *("_seen_calls", "_seen_since", "calls", "cancels", "has_substitute", "hangs", "is_calling", "is_overdue"),
        *("has_cancelled_itself", "is_cancelled", "is_fenced", "is_direct", "overdue_since", "pending"),
        *("record", "slot", "task", "window"),
    )

    def __init__(self) -> None:
        self.task: LaneTask | None = None
        self.record: Record | None = None
        self.window: Sequence[Record] = ()
        self.slot = 1  # in the begun table
        self.is_direct = False  # it runs the shortest loop
        self.pending: Pending | None = None  # of the last call, with manual acknowledgement
        self.calls = 0
        self.is_calling = False
        self.cancels = False  # whether its current call can be cancelled
        self.is_overdue = False
        self.overdue_since = 0.0
        self.is_fenced = False  # its call was cancelled because another member may own its partition
        self.has_substitute = False
        self.hangs = False  # its call does not end, and no other lane waits for it
        self.is_cancelled = False  # its task was cancelled, by any party
        self.has_cancelled_itself = False  # the function that ran in the task cancelled it
        self._seen_calls = -1
        self._seen_since = 0.0

    def begin_call(self) -> None:
        """Called on the thread that runs the call."""
        self.calls += 1
        self.is_calling = True

    def fence(self, now: float) -> None:
        """Cancel its call, if that is possible: the record is put back."""
        if self.is_calling and self.cancels and not self.is_overdue and self.task is not None:
            self.is_overdue = self.is_fenced = True
            self.overdue_since = now
            self.task.cancel()

    async def go_on(self) -> None:
        """Called in its task after a failed call. If the function has cancelled the task, the cancellation must not hit
        the next await."""
        if not self.has_cancelled_itself or self.task is None:
            return
        while self.task.uncancel():
            pass
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)  # noqa: TID251 - not a wait: the pending cancellation is raised here
        self.is_cancelled = self.has_cancelled_itself = False

    @property
    def records(self) -> Sequence[Record]:
        """The records in flight."""
        return self.window or (() if self.record is None else (self.record,))

    def is_stuck(self, now: float, grace: float) -> bool:
        """Whether its call is overdue and does not end; if it can be cancelled, only after a grace period."""
        return self.is_overdue and self.is_calling and (not self.cancels or now - self.overdue_since >= grace)

    def is_beyond(self, now: float, limit: float) -> bool:
        """True once for a call that takes longer than the limit, as measured by the sweeps."""
        if not self.is_calling or self.is_overdue:
            return False
        if self.calls != self._seen_calls:
            self._seen_calls, self._seen_since = self.calls, now
            return False
        return now - self._seen_since >= limit


class LaneTask(asyncio.Task[None]):
    """Records in its lane who cancels it: a function may also cancel the task that it runs in, which is its lane's."""

    def __init__(
        self, body: Coroutine[Any, Any, None], lane: Lane, loop: asyncio.AbstractEventLoop, context: Context
    ) -> None:
        super().__init__(body, loop=loop, context=context)
        self._lane = lane
        lane.is_cancelled = lane.has_cancelled_itself = False

    def cancel(self, msg: Any | None = None) -> bool:
        self._lane.is_cancelled = True
        self._lane.has_cancelled_itself = asyncio.current_task(self.get_loop()) is self
        return super().cancel(msg)


async def lanes_end(lanes: Collection[Lane], deadline: float, clock: Clock) -> None:
    """Wait until all lanes have ended, or until the deadline."""
    while tasks := [lane.task for lane in lanes if lane.task is not None]:
        left = deadline - clock.monotonic()
        done, _ = await asyncio.wait(tasks, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
        if not done and left <= 0:
            return
