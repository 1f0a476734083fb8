"""Threads for `def` functions, as many as there are lanes.

Thread: loop; the functions run on threads of this module.

A call goes into a queue for any free thread; results are collected and passed to the loop in batches, because waking
the loop for each call would cost more than most calls. Owns its threads, which live as long as it does, or until the
limit is lowered; a function that never ends keeps its thread, and the process does not wait for it. If the system
refuses a thread, calls wait until it starts one, or until another thread is free.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from itertools import count
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, Final

from multilane.logs import logger
from multilane.outcome.raised import as_failure, failure_on_thread
from multilane.rate_limit import RateLimit

log = logger(__name__)

_LOG_EVERY: Final = 30.0
_TRY_AGAIN: Final = 1.0  # seconds until a thread is started again that the system has refused

LoopCall = tuple["asyncio.Future[Any]", Callable[[], Any]]
CallAnswer = tuple["asyncio.Future[Any]", Any, BaseException | None]


class NotBegun(BaseException):
    """A call was withdrawn before it began. Not a failure."""


def failure_of(error: BaseException) -> Exception:
    """The failure for what the user's function raised. Raises NotBegun: a withdrawn call has not failed."""
    if isinstance(error, NotBegun):
        raise error
    return as_failure(error)


class Threads:
    shares_memory = True
    ends_calls = False  # a thread cannot be cancelled
    gate = None  # every call gets a thread

    def __init__(self, name: str, limit: float = inf) -> None:
        """Calls beyond the limit wait for the next free thread, which then need not wait for the loop."""
        self._limit = limit
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[LoopCall | None] = SimpleQueue()
        self._answers: deque[CallAnswer] = deque()
        self._is_woken = False
        self._numbers = count()
        self._alive = 0  # without those that are asked to end
        self._open = 0
        self._is_refused = self._is_closed = False
        self._refusals = RateLimit(_LOG_EVERY)
        self.idents: set[int] = set()  # of its threads

    def __call__(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """The result of the function, as a future. The call begins at once unless all threads are busy."""
        self._open += 1
        future: asyncio.Future[Any] = self._loop.create_future()
        self._calls.put((future, function))
        if self._open > self._alive < self._limit:
            self._start_missing()
        return future

    def __len__(self) -> int:
        return self._alive

    @property
    def limit(self) -> float:
        return self._limit

    @limit.setter
    def limit(self, limit: float) -> None:
        self._limit = limit
        if not self._is_closed:
            self._start_missing()  # for calls that wait
        while self._alive > limit:
            self._end_one()

    def withdraw(self) -> None:
        """Withdraw the calls that have not begun."""
        ends = 0
        with suppress(Empty):
            while True:
                call = self._calls.get_nowait()
                if call is None:
                    ends += 1
                    continue
                self._open -= 1
                if not call[0].done():
                    call[0].set_exception(NotBegun())
        for _ in range(ends):
            self._calls.put(None)

    def close(self) -> None:
        """Let threads end after their current call, without waiting for them."""
        self._is_closed = True
        while self._alive:
            self._end_one()

    def _start_missing(self) -> None:
        while self._open > self._alive < self._limit and not self._is_refused and self._start():
            pass

    def _start(self) -> bool:
        try:
            threading.Thread(target=self._run, name=f"{self._name}-{next(self._numbers)}", daemon=True).start()
        except RuntimeError as error:
            self._is_refused = True
            self._loop.call_later(_TRY_AGAIN, self._try_again)
            if self._refusals.due(self._loop.time()):
                log.warning(
                    "%s has %d threads, and the system starts no more (%s): calls wait. Raise the system's limit of "
                    "threads, or use fewer lanes. Calls that hang keep their threads",
                    *(self._name, self._alive, error),
                )
            return False
        self._alive += 1
        return True

    def _try_again(self) -> None:
        self._is_refused = False
        if not self._is_closed:
            self._start_missing()

    def _end_one(self) -> None:
        """Ends the thread that is free next."""
        self._alive -= 1
        self._calls.put(None)

    def _run(self) -> None:
        self.idents.add(threading.get_ident())
        try:
            self._run_calls()
        finally:
            self.idents.discard(threading.get_ident())

    def _run_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            try:
                self._answers.append((future, copy_context().run(function), None))
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                self._answers.append((future, None, error))
            del call, future, function
            if not self._is_woken:  # else a wakeup is pending and finds this answer, too
                self._is_woken = True
                try:
                    self._loop.call_soon_threadsafe(self._resolve)
                except RuntimeError:
                    return  # the loop is closed: no caller waits any more

    def _resolve(self) -> None:
        self._is_woken = False
        while self._answers:
            future, result, error = self._answers.popleft()
            self._open -= 1
            if future.done():
                continue  # the caller no longer waits
            if error is None:
                future.set_result(result)
            else:  # an error that ends a thread must not end the loop
                future.set_exception(failure_on_thread(error))
