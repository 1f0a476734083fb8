"""A lane: one worker for the whole of its life, and what it is at.

Thread: loop.

Owns nothing but the facts that its crew and the sweep for overdue calls look at. A lane counts its calls instead of
reading the clock for each: the sweep remembers since when it has seen the same count.
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
        *("at", "has_cancelled_itself", "is_cancelled", "is_fenced", "is_plain", "overdue_since", "pending"),
        *("record", "task", "window"),
    )

    def __init__(self) -> None:
        self.task: LaneTask | None = None
        self.record: Record | None = None
        self.window: Sequence[Record] = ()
        self.at = 1  # its slot in the begun table
        self.is_plain = False  # it goes the shortest way
        self.pending: Pending | None = None  # of the last call, where records are acknowledged by hand
        self.calls = 0
        self.is_calling = False
        self.cancels = False  # whether the call it is at can be made to end
        self.is_overdue = False
        self.overdue_since = 0.0
        self.is_fenced = False  # its call was cancelled because its partition may be another's
        self.has_substitute = False
        self.hangs = False  # its call does not end, and nobody waits for it
        self.is_cancelled = False  # its task was, by whomever
        self.has_cancelled_itself = False  # by the function that ran in it
        self._seen_calls = -1
        self._seen_since = 0.0

    def begin_call(self) -> None:
        """From the thread that runs it."""
        self.calls += 1
        self.is_calling = True

    def fence(self, now: float) -> None:
        """Cancel its call, if that can be: the record is put back."""
        if self.is_calling and self.cancels and not self.is_overdue and self.task is not None:
            self.is_overdue = self.is_fenced = True
            self.overdue_since = now
            self.task.cancel()

    async def go_on(self) -> None:
        """In its task, after a call that failed: if the function has cancelled the task, what comes next must not end
        by that."""
        if not self.has_cancelled_itself or self.task is None:
            return
        while self.task.uncancel():
            pass
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)  # noqa: TID251 - not a wait: what is pending is raised here
        self.is_cancelled = self.has_cancelled_itself = False

    @property
    def records(self) -> Sequence[Record]:
        """What it is at."""
        return self.window or (() if self.record is None else (self.record,))

    def is_stuck(self, now: float, grace: float) -> bool:
        """Its call is overdue and does not end, although it was cancelled a while ago if it can be."""
        return self.is_overdue and self.is_calling and (not self.cancels or now - self.overdue_since >= grace)

    def is_beyond(self, now: float, limit: float) -> bool:
        """True once for a call that takes longer than the limit, as far as the sweeps have seen it."""
        if not self.is_calling or self.is_overdue:
            return False
        if self.calls != self._seen_calls:
            self._seen_calls, self._seen_since = self.calls, now
            return False
        return now - self._seen_since >= limit


class LaneTask(asyncio.Task[None]):
    """Tells its lane who cancels it: a function may also cancel the task that it runs in, which is its lane's."""

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
    """Until there are none, or it is time."""
    while tasks := [lane.task for lane in lanes if lane.task is not None]:
        left = deadline - clock.monotonic()
        done, _ = await asyncio.wait(tasks, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
        if not done and left <= 0:
            return
