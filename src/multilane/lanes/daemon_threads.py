"""Threads for `asyncio.to_thread` that do not keep the process from ending.

Thread: any; submitted calls run on threads of this module.

The standard pool's threads are joined when the interpreter ends: a function that hangs there would keep the process
alive forever. Nor do they stay: most calls are made at the start and the end of an app, and a thread that had no call
for a while ends.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
QueuedCall = tuple["Future[Any]", Callable[[], Any]]

_IDLE_SECONDS: Final = 5.0


class DaemonThreads(ThreadPoolExecutor):
    """A ThreadPoolExecutor, because an event loop accepts nothing else, with its own daemon threads."""

    def __init__(self, most: int | None = None, *, idle: float = _IDLE_SECONDS) -> None:
        """`idle`: seconds without a call after which a thread ends."""
        super().__init__(most or min(32, (os.cpu_count() or 1) + 4))
        self._idle = idle
        self._numbers = count()
        self._calls: deque[QueuedCall] = deque()
        self._alive = 0
        self._waiting = 0  # threads that wait for a call, also those that were notified and have not taken it yet
        self._is_over = False
        self._changed = threading.Condition()  # guards all of the above

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._changed:
            if self._is_over:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._calls.append((future, lambda: fn(*args, **kwargs)))
            if len(self._calls) <= self._waiting:
                self._changed.notify()
            elif self._alive < self._max_workers:
                self._start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Never waits for running calls."""
        del wait
        with self._changed:
            self._is_over = True
            if cancel_futures:
                for future, _ in self._calls:
                    future.cancel()
            self._changed.notify_all()

    def _start(self) -> None:
        try:
            threading.Thread(target=self._run, name=f"multilane-any-{next(self._numbers)}", daemon=True).start()
        except RuntimeError:  # the system has no more threads: one that is busy takes the call later
            if not self._alive:
                self._calls.pop()
                raise
        else:
            self._alive += 1

    def _run(self) -> None:
        while (call := self._next_call()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - the caller gets it
                    future.set_exception(error)
            del call, future, function

    def _next_call(self) -> QueuedCall | None:
        """None if this thread ends."""
        with self._changed:
            was_notified = True
            while not self._calls and was_notified and not self._is_over:
                self._waiting += 1
                was_notified = self._changed.wait(self._idle)
                self._waiting -= 1
            if self._calls:
                return self._calls.popleft()
            self._alive -= 1
            return None
