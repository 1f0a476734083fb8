"""One kind of request to the coordinator: at most one in flight; answers to abandoned requests are ignored.

Thread: none (pure); belongs to a membership.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multilane.client.net.request_state import RequestBackoff, RequestState
from multilane.client.net.requests import CONTROL, Channel, UnsentRequest

if TYPE_CHECKING:
    from multilane.errors import MultilaneError
    from multilane.types import NodeId
    from multilane.wire.messages import ApiKey


@dataclass(frozen=True, slots=True)
class ExchangeKind:
    api: ApiKey
    at_least: int
    channel: Channel = CONTROL
    timeout: float | None = None


class Exchange:
    __slots__ = ("_backoff", "_kind", "_turn", "state")

    def __init__(self, kind: ExchangeKind, backoff: RequestBackoff) -> None:
        self._kind = kind
        self._backoff = backoff
        self._turn = 0
        self.state = RequestState(backoff)

    def request(
        self,
        node: NodeId,
        build: Callable[[int], Any],
        answered: Callable[[Any, NodeId, float], None],
        failed: Callable[[MultilaneError, NodeId, float], None],
    ) -> UnsentRequest:
        turn = self._turn

        def on_response(response: Any, now: float) -> None:
            if turn == self._turn:
                answered(response, node, now)

        def on_failure(error: MultilaneError, now: float) -> None:
            if turn == self._turn:
                failed(error, node, now)

        self.state.sent()
        kind = self._kind
        return UnsentRequest(
            api=kind.api,
            build=build,
            on_response=on_response,
            on_failure=on_failure,
            node=node,
            channel=kind.channel,
            at_least=kind.at_least,
            timeout=kind.timeout,
        )

    def stumbled(self, now: float) -> None:
        """The answer was an error to retry: at once the first time, then after a back-off."""
        self.state.failed(now)
        if self.state.failures == 1:
            self.state.rest_until(now)

    def abandon(self) -> bool:
        """Ignores the answer to a request in flight. Returns whether there was one."""
        self._turn += 1
        was = self.state.in_flight
        if was:
            self.state = RequestState(self._backoff)
        return was
