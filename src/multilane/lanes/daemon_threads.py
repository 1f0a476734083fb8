"""Threads for `asyncio.to_thread` that do not keep the process from ending.

Thread: any; submitted calls run on threads of this module.

The standard pool's threads are joined when the interpreter ends: a function that hangs there would keep the process
alive forever. Nor do they stay: most calls are made at the start and the end of an app, and a thread that had no call
for a while ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from queue import Empty, SimpleQueue
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
        self._calls: SimpleQueue[QueuedCall | None] = SimpleQueue()
        self._free = threading.Semaphore(0)  # threads that wait for a call, less the calls that they have not taken
        self._idle = idle
        self._numbers = count()
        self._alive = 0
        self._is_over = False
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._is_over:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._calls.put((future, lambda: fn(*args, **kwargs)))
            if not self._free.acquire(blocking=False) and self._alive < self._max_workers:
                self._alive += 1
                threading.Thread(target=self._run, name=f"multilane-any-{next(self._numbers)}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Never waits for running calls."""
        del wait
        with self._lock:
            self._is_over = True
            if cancel_futures:
                with suppress(Empty):
                    while (call := self._calls.get_nowait()) is not None:
                        call[0].cancel()
            for _ in range(self._alive):
                self._calls.put(None)

    def _run(self) -> None:
        while (call := self._next_call()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - the caller gets it
                    future.set_exception(error)
            del call, future, function
            self._free.release()

    def _next_call(self) -> QueuedCall | None:
        """None if this thread ends."""
        while True:
            with suppress(Empty):
                return self._calls.get(timeout=self._idle)
            with self._lock:
                if self._free.acquire(blocking=False):
                    self._alive -= 1
                    return None
