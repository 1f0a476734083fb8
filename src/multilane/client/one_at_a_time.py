"""One thread or task uses a consumer at a time; a second one is refused instead of waiting.

Thread: any.

Owns who uses the consumer now. That one may come again from within its own call: callbacks do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from multilane.errors import ConcurrentUse


class OneAtATime:
    def __init__(self, caller: Callable[[], object]) -> None:
        """`caller` names whoever is calling: a thread, or a task."""
        self._lock = threading.Lock()
        self._caller = caller
        self._user: object = None

    @property
    def is_busy(self) -> bool:
        return self._lock.locked()

    @contextmanager
    def exclusive(self, check: Callable[[], None]) -> Iterator[None]:
        """`check` raises what makes any use impossible."""
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
