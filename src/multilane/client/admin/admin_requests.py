"""Sends requests while the calling thread waits: to any broker, a given one, or the responsible one.

Thread: application, any number at a time. The requests themselves are calls on the shared network thread.

The responsible broker (a group's coordinator, a partition's leader) may change during the wait. So a request that stays
open for some seconds triggers a new lookup, and goes to the new broker if there is one. Transient errors are retried
until the deadline and never count as a result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from multilane.client.calls import Call, Judge, no_error
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
# The network thread enforces the deadline. The caller waits a little longer, in case it cannot.
_GRACE_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class AdminRequest:
    api: ApiKey
    build: Callable[[int], Any]
    at_least: int = 0
    judge: Judge = no_error


class AdminRequests:
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
            raise ForkedClient("this admin client was created before a fork; create a new one in this process")
        if self._closing.is_set():
            raise ClientClosed("this admin client is closed")

    def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        ended = self._lease.release()
        if ended is not None:
            ended.exception(_CLOSE_SECONDS)

    # --- requests ----------------------------------------------------------------------------------------------------

    def ask(self, request: AdminRequest, deadline: float) -> Any:
        """Send to any broker. Retries while `judge` returns a retriable error."""
        return self._result(self.send(request, deadline, None, request.judge), self.left(deadline) + _GRACE_SECONDS)

    def send(self, request: AdminRequest, deadline: float, node: NodeId | None, judge: Judge = no_error) -> Future[Any]:
        """Send without waiting. For a given node, the caller judges the response."""
        self.check()
        future: Future[Any] = Future()
        call = Call(request.api, request.build, deadline, future, node, request.at_least, judge)
        self._lease.thread.put(call)
        return future

    def ask_responsible(self, find: Callable[[], NodeId], request: AdminRequest, deadline: float) -> tuple[Any, NodeId]:
        """Send to the broker that `find` returns, found again after every transient error. Returns the response and the
        broker."""
        failures = 0
        while True:
            node = find()
            response = self.wait_responsible(self.send(request, deadline, node), node, find, deadline)
            if response is None:
                continue
            error = request.judge(response)
            if error is None:
                return response, node
            if not error.retriable:
                raise error
            failures += 1
            self.pause(failures, deadline, error)

    def wait_responsible(
        self, future: Future[Any], node: NodeId, find: Callable[[], NodeId | None], deadline: float
    ) -> Any | None:
        """The response; None if there is none yet and another broker has become responsible."""
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
        """Wait before a retry; ends at the deadline or when the client is closed."""
        self._closing.wait(min(self._backoff.delay(failures), self.left(deadline)))
        self.check()
        if self.left(deadline) <= 0:
            raise OperationTimeout(f"no usable response in time: {error}") from error

    def _result(self, future: Future[Any], timeout: float) -> Any:
        try:
            return future.result(timeout)
        except FutureTimeout as error:
            if isinstance(error, MultilaneError):
                raise
            raise OperationTimeout("the network thread did not answer in time") from None
