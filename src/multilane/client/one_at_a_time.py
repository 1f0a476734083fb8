"""Lets one thread or task use a consumer at a time, and refuses a second one instead of making it wait.

Thread: any.

Owns the current user. That user may call the consumer again from within its own call, as callbacks do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from multilane.errors import ConcurrentUse


class OneAtATime:
    def __init__(self, caller: Callable[[], object]) -> None:
        """`caller` returns the calling thread or task."""
        self._lock = threading.Lock()
        self._caller = caller
        self._user: object = None

    @property
    def is_busy(self) -> bool:
        return self._lock.locked()

    @contextmanager
    def exclusive(self, check: Callable[[], None]) -> Iterator[None]:
        """`check` raises if the consumer cannot be used at all."""
        check()
        if self._user is not None and self._user is self._caller():
            yield
            return
        if not self._lock.acquire(blocking=False):
            raise ConcurrentUse("another thread or task is using this consumer; give each its own, or use a lock")
        self._user = self._caller()
        try:
            yield
        finally:
            self._user = None
            self._lock.release()
