"""Calls of a consumer that a wakeup does not end.

Thread: loop; the task that uses the consumer.

Lanes that run out of records, and whoever stops a run, wake the consumer up. That is meant for its poll. It also ends
every other call that waits for brokers, and such a call is simply made again: assignments and commits depend on it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from multilane.errors import WakeupError

T = TypeVar("T")


async def uninterrupted(call: Callable[[], Awaitable[T]]) -> T:
    """Whoever woke the consumer up has left a flag that is looked at before the next poll."""
    while True:
        try:
            return await call()
        except WakeupError:
            continue
