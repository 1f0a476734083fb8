"""Sends single requests that have no manager of their own, such as administrative reads.

Thread: none (pure state machine); owned by the network thread.

Retries a call after transient errors until its deadline. The call's `judge` reads the error codes in the body of a
response.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multilane.client.futures import fulfil, refuse
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import NEVER, Poll, UnsentRequest
from multilane.errors import MultilaneError, OperationTimeout

if TYPE_CHECKING:
    from multilane.types import NodeId
    from multilane.wire.messages import ApiKey

Judge = Callable[[Any], MultilaneError | None]


def no_error(_response: Any) -> MultilaneError | None:
    return None


@dataclass(frozen=True, slots=True)
class Call:
    """`judge` returns the error in a response, if there is one."""

    api: ApiKey
    build: Callable[[int], Any]
    deadline: float
    future: Future[Any]
    node: NodeId | None = None
    at_least: int = 0
    judge: Judge = no_error


@dataclass(slots=True, eq=False)
class _OpenCall:
    call: Call
    failures: int = 0
    in_flight: bool = False
    not_before: float = 0.0
    error: MultilaneError | None = None


class CallManager:
    def __init__(
        self,
        backoff: RequestBackoff,
        last_failure: Callable[[], MultilaneError | None] = lambda: None,
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        """`last_failure` returns what keeps requests from being sent, if anything does. `refresh` requests new cluster
        metadata."""
        self._backoff = backoff
        self._last_failure = last_failure
        self._refresh = refresh
        self._open: list[_OpenCall] = []

    def add(self, call: Call) -> None:
        self._open.append(_OpenCall(call))

    def poll(self, now: float) -> Poll:
        requests = []
        wait = NEVER
        for entry in list(self._open):
            if now >= entry.call.deadline:
                error = entry.error or self._last_failure()
                cause = f": {error}" if error else ""
                self._finish(entry, error=OperationTimeout(f"no response to {entry.call.api.name} in time{cause}"))
                continue
            wait = min(wait, entry.call.deadline - now)
            if entry.in_flight:
                continue
            if now < entry.not_before:
                wait = min(wait, entry.not_before - now)
                continue
            entry.in_flight = True
            requests.append(self._request(entry))
        return Poll(tuple(requests), wait)

    def abandon(self, error: MultilaneError) -> None:
        for entry in list(self._open):
            self._finish(entry, error=error)

    def _request(self, entry: _OpenCall) -> UnsentRequest:
        """Uses the connection's own timeout: a short call must not close a connection that others share."""
        return UnsentRequest(
            api=entry.call.api,
            build=entry.call.build,
            on_response=lambda response, at: self._on_response(entry, response, at),
            on_failure=lambda error, at: self._on_failure(entry, error, at),
            node=entry.call.node,
            at_least=entry.call.at_least,
        )

    def _on_response(self, entry: _OpenCall, response: Any, now: float) -> None:
        error = entry.call.judge(response)
        if error is None:
            self._finish(entry, result=response)
        else:
            self._on_failure(entry, error, now)

    def _on_failure(self, entry: _OpenCall, error: MultilaneError, now: float) -> None:
        entry.in_flight = False
        entry.error = error
        if error.refresh_metadata:
            self._refresh()
        if not error.retriable:
            self._finish(entry, error=error)
            return
        entry.failures += 1
        entry.not_before = now + self._backoff.delay(entry.failures)

    def _finish(self, entry: _OpenCall, *, result: Any = None, error: MultilaneError | None = None) -> None:
        if entry not in self._open:
            return
        self._open.remove(entry)
        if error is None:
            fulfil(entry.call.future, result)
        else:
            refuse(entry.call.future, error)
