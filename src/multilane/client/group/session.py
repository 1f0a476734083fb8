"""Asks the coordinator for the session timeout of a KIP-848 group, which heartbeats do not contain.

Thread: none (pure state machine); owned by the network thread, one per membership under the consumer protocol.

The group's own setting counts, else the broker's default. A client that may not read settings learns neither and
assumes three heartbeat intervals. A request that fails for the moment is sent again: the broker's default may be
longer than the group's setting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from multilane.client.net.request_state import RequestBackoff, RequestState
from multilane.client.net.requests import NOTHING, Poll, UnsentRequest
from multilane.errors import broker_error
from multilane.wire.compose_groups import broker_settings_request, group_settings_request
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.group.membership import Coordinators
    from multilane.errors import MultilaneError
    from multilane.types import NodeId

_OF_GROUP: Final = "consumer.session.timeout.ms"
_OF_BROKER: Final = "group.consumer.session.timeout.ms"


class GroupSession:
    def __init__(
        self, group: str, coordinators: Coordinators, backoff: RequestBackoff, on_found: Callable[[float], None]
    ) -> None:
        self._group = group
        self._state = RequestState(backoff)
        self._coordinators = coordinators
        self._on_found = on_found
        self._next: list[str] = [_OF_GROUP, _OF_BROKER]  # the first with an answer counts

    def poll(self, now: float) -> Poll:
        if not self._next or self._state.in_flight:
            return NOTHING
        node = self._coordinators.of(self._group)
        if node is None:
            return NOTHING
        if not self._state.may_send(now):
            return Poll((), self._state.wait(now))
        self._state.sent()
        return Poll((self._request(node, self._next[0]),))

    def _request(self, node: NodeId, name: str) -> UnsentRequest:
        def build(version: int) -> Any:
            if name == _OF_GROUP:
                return group_settings_request(version, self._group, (name,))
            return broker_settings_request(version, node, (name,))

        def on_response(response: Any, now: float) -> None:
            if any(broker_error(code).retriable for code in _codes(response)):
                self._state.failed(now)
                return
            seconds = _seconds(response, name)
            if seconds is None:
                self._go_on()
                return
            self._next = []
            self._on_found(seconds)

        def on_failure(error: MultilaneError, now: float) -> None:
            if error.retriable:
                self._state.failed(now)
            else:
                self._go_on()

        return UnsentRequest(
            api=ApiKey.DESCRIBE_CONFIGS, build=build, on_response=on_response, on_failure=on_failure, node=node
        )

    def _go_on(self) -> None:
        self._next = self._next[1:]
        self._state.succeeded()


def _codes(response: Any) -> list[int]:
    return [code for result in response.results if (code := int(result.error_code))]


def _seconds(response: Any, name: str) -> float | None:
    values = [
        str(config.value)
        for result in response.results
        if not int(result.error_code)
        for config in result.configs
        if str(config.name) == name
    ]
    return int(values[0]) / 1000 if values and values[0].isdecimal() and int(values[0]) > 0 else None
