"""Consumer calls that a wakeup does not interrupt.

Thread: loop; the task that uses the consumer.

Lanes that run out of records wake the consumer up, and so does the end of a run. The wakeup is meant for `poll`, but it
also ends every other call that waits for brokers. Such a call is repeated: assignments and commits depend on it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from multilane.errors import WakeupError

T = TypeVar("T")


async def uninterrupted(call: Callable[[], Awaitable[T]]) -> T:
    """Repeats the call. The component that woke the consumer has set a flag, which is read before the next poll."""
    while True:
        try:
            return await call()
        except WakeupError:
            continue
