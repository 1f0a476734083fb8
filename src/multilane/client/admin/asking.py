"""Asks brokers on behalf of a thread that waits: any broker, a given one, or whoever is responsible.

Thread: application, any number at a time. The requests themselves are calls on the shared network thread.

Who is responsible (a group's coordinator, a partition's leader) may change while we wait. So a question that stays open
for some seconds makes us look again; when someone else has taken over, the question goes there. Errors that pass are
waited through until the deadline and never taken for an answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from multilane.client.calls import Call, Judge, no_complaint
from multilane.client.net.request_state import RequestBackoff
from multilane.client.sharing import THREADS
from multilane.clock import Clock, SystemClock
from multilane.errors import ClientClosed, ForkedClient, MultilaneError, OperationTimeout

if TYPE_CHECKING:
    from multilane.config.connection import ConnectionConfig
    from multilane.metrics.observer import Observer
    from multilane.types import NodeId
    from multilane.wire.messages import ApiKey

_LOOK_AGAIN_SECONDS: Final = 2.0
# The network thread keeps the deadline; we wait a little longer, in case it cannot.
_GRACE_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class AdminQuestion:
    api: ApiKey
    build: Callable[[int], Any]
    at_least: int = 0
    judge: Judge = no_complaint


class Asker:
    def __init__(self, config: ConnectionConfig, clock: Clock | None = None, observer: Observer | None = None) -> None:
        self._clock = clock or SystemClock()
        self._timeout = config.default_api_timeout
        self._backoff = RequestBackoff(config.retry_backoff, config.retry_backoff_max)
        self._closing = threading.Event()
        self._lease = THREADS.acquire(config, clock, observer)

    def deadline(self, timeout: float | None) -> float:
        return self._clock.monotonic() + (self._timeout if timeout is None else timeout)

    def left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock.monotonic())

    def check(self) -> None:
        if self._lease.is_inherited:
            raise ForkedClient("this admin client was made before a fork; make a new one in this process")
        if self._closing.is_set():
            raise ClientClosed("this admin client is closed")

    def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        ended = self._lease.release()
        if ended is not None:
            ended.exception(_CLOSE_SECONDS)

    # --- asking ------------------------------------------------------------------------------------------------------

    def ask(self, question: AdminQuestion, deadline: float) -> Any:
        """Any broker. What `judge` finds retriable is asked again."""
        return self._result(self.send(question, deadline, None, question.judge), self.left(deadline) + _GRACE_SECONDS)

    def send(
        self, question: AdminQuestion, deadline: float, node: NodeId | None, judge: Judge = no_complaint
    ) -> Future[Any]:
        """Puts a question on its way. With a node it is judged by whoever waits for it."""
        self.check()
        future: Future[Any] = Future()
        call = Call(question.api, question.build, deadline, future, node, question.at_least, judge)
        self._lease.thread.put(call)
        return future

    def ask_responsible(
        self, find: Callable[[], NodeId], question: AdminQuestion, deadline: float
    ) -> tuple[Any, NodeId]:
        """Whoever `find` names, found anew after every error that passes. The answer, and who gave it."""
        failures = 0
        while True:
            node = find()
            response = self.wait_responsible(self.send(question, deadline, node), node, find, deadline)
            if response is None:
                continue
            error = question.judge(response)
            if error is None:
                return response, node
            if not error.retriable:
                raise error
            failures += 1
            self.pause(failures, deadline, error)

    def wait_responsible(
        self, future: Future[Any], node: NodeId, find: Callable[[], NodeId | None], deadline: float
    ) -> Any | None:
        """The answer; None when it did not come and someone else is responsible by now."""
        while True:
            left = self.left(deadline) + _GRACE_SECONDS
            try:
                return future.result(min(left, _LOOK_AGAIN_SECONDS))
            except FutureTimeout as error:
                if isinstance(error, MultilaneError):
                    raise
                if left <= _LOOK_AGAIN_SECONDS:
                    raise OperationTimeout("the network thread did not answer in time") from None
            if find() != node:
                future.cancel()
                return None

    def pause(self, failures: int, deadline: float, error: MultilaneError) -> None:
        """The wait before a question is asked again; ends with the deadline or when the client is closed."""
        self._closing.wait(min(self._backoff.delay(failures), self.left(deadline)))
        self.check()
        if self.left(deadline) <= 0:
            raise OperationTimeout(f"no usable answer within the time given: {error}") from error

    def _result(self, future: Future[Any], timeout: float) -> Any:
        try:
            return future.result(timeout)
        except FutureTimeout as error:
            if isinstance(error, MultilaneError):
                raise
            raise OperationTimeout("the network thread did not answer in time") from None
