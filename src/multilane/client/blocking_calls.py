"""Blocking calls, written once for threads and for event loops.

Thread: application.

A call is a generator. It yields what it waits for, a `Wait` on the network thread or an awaitable from the
application's own callback, and receives the result or the error. `Consumer` drives calls by blocking, `AsyncConsumer`
by awaiting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from multilane.errors import MultilaneError

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait for the network thread. `with_grace` waits a little longer, because the network thread reports the timeout
    itself. wakeup() may interrupt a call of the application, but not a wait of a rebalance or of close()."""

    future: Future[Any]
    deadline: float
    with_grace: bool = True
    is_interruptible: bool = False


BlockingCall: TypeAlias = Generator[Wait | Awaitable[Any], Any, R]


def wait_quietly(future: Future[None], deadline: float) -> BlockingCall[None]:
    """Wait and ignore errors: the caller that owns the future gets them."""
    try:
        yield Wait(future, deadline, with_grace=False)
    except (MultilaneError, FutureTimeout):
        return
