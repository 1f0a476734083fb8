"""Calls that wait, written once for threads and for event loops.

Thread: application.

A plan is a generator. It yields what it must wait for, a `Wait` on the network thread or what an application's own
coroutine function returned, and is sent the result or thrown the error. `Consumer` drives plans by blocking,
`AsyncConsumer` by awaiting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Wait:
    """For the network thread. Where that keeps the deadline itself, its word is waited for a little longer. What the
    application asked for may be interrupted by wakeup(); what a rebalance or close() needs may not."""

    future: Future[Any]
    deadline: float
    with_grace: bool = True
    is_interruptible: bool = False


Plan: TypeAlias = Generator[Wait | Awaitable[Any], Any, R]
