"""The application's last steps that run now, and what happens to one that takes longer than maxProcessingTime.

Thread: loop.

A coroutine is cancelled, and has failed. A `def` function cannot be cancelled: it hangs, like a coroutine that ignores
its cancellation, and its lane gets a substitute until it returns. Owns the calls that run; never calls one again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from multilane.clock import Clock
from multilane.errors import ProcessingTimeout
from multilane.listeners.context import Context
from multilane.listeners.signature import is_async, location_of
from multilane.logs import logger
from multilane.outcome.own_thread import on_own_thread
from multilane.outcome.raised import as_failure, is_cancelled
from multilane.rate_limit import RateLimit
from multilane.wire.records.record import Record

log = logger(__name__)

LastStepFunction = Callable[[Context, Record, BaseException], Any]
_LOG_EVERY: Final = 10.0


@dataclass(eq=False, slots=True)
class _Call:
    record: Record
    task: asyncio.Task[None]
    since: float
    limit: float = inf  # that it has exceeded
    hangs_at: float = inf
    hangs: bool = False


class LastSteps:
    def __init__(self, function: LastStepFunction, clock: Clock) -> None:
        self._function = function
        self._clock = clock
        self._cancels = is_async(function)
        self._calls: set[_Call] = set()
        self._rate_limit = RateLimit(_LOG_EVERY)

    async def call(self, context: Context, record: Record, error: BaseException) -> None:
        """Raises what the function raises, or ProcessingTimeout. A `def` function that returns late has succeeded."""
        body = _called(self._function, context, record, error)
        # A task of its own: the sweep must not cancel the lane, which may wait for the last steps of a whole window.
        call = _Call(record, asyncio.ensure_future(body), self._clock.monotonic())
        self._calls.add(call)
        try:
            await call.task
        except asyncio.CancelledError as cancelled:
            if call.limit == inf or is_cancelled(cancelled):
                raise
            name, limit = location_of(self._function), call.limit
            raise ProcessingTimeout(f"{name} took longer than {limit:g} s (maxProcessingTime)") from cancelled
        finally:
            self._calls.discard(call)

    def hanging(self, now: float, limit: float, grace: float) -> set[Record]:
        """Cancels the calls beyond the limit. Returns the records of those that do not end: if they can be cancelled,
        after a grace period."""
        for call in self._calls:
            if call.limit == inf and now - call.since >= limit:
                call.limit = limit
                call.hangs_at = now + grace if self._cancels else now
                if self._cancels:
                    call.task.cancel()
            if now >= call.hangs_at and not call.hangs:
                call.hangs = True
                self._log(call, now)
        return {call.record for call in self._calls if call.hangs}

    def _log(self, call: _Call, now: float) -> None:
        if many := self._rate_limit.due(now):
            log.error(
                "the last step %s has exceeded maxProcessingTime (%g s) with %s and does not end. The record's key "
                "waits until it does, and a substitute lane takes over. Such calls since the last such line: %d",
                *(location_of(self._function), call.limit, call.record, many),
            )


async def _called(function: LastStepFunction, *arguments: Any) -> None:
    """A `def` function runs on a thread, so that it does not block the loop."""
    try:
        answer = function(*arguments) if is_async(function) else await on_own_thread(function, *arguments)
        if inspect.isawaitable(answer):
            await answer
    except asyncio.CancelledError:
        raise
    except BaseException as raised:  # a task that raises SystemExit ends the loop
        failure = as_failure(raised)
        if failure is raised:
            raise
        raise failure from raised
