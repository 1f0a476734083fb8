"""Asks the coordinator for the session timeout of a KIP-848 group, which heartbeats do not contain.

Thread: none (pure state machine); owned by the network thread, one per membership under the consumer protocol.

The group's own setting counts, else the broker's default. A client that may not read settings learns neither and
assumes three heartbeat intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from multilane.client.net.requests import NOTHING, Poll, UnsentRequest
from multilane.wire.compose_groups import broker_settings_request, group_settings_request
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.group.membership import Coordinators
    from multilane.errors import MultilaneError
    from multilane.types import NodeId

_OF_GROUP: Final = "consumer.session.timeout.ms"
_OF_BROKER: Final = "group.consumer.session.timeout.ms"


class GroupSession:
    def __init__(self, group: str, coordinators: Coordinators, on_found: Callable[[float], None]) -> None:
        self._group = group
        self._coordinators = coordinators
        self._on_found = on_found
        self._next: list[str] = [_OF_GROUP, _OF_BROKER]  # the first with an answer counts

    def poll(self, now: float) -> Poll:
        node = self._coordinators.of(self._group) if self._next else None
        if node is None:
            return NOTHING
        name = self._next[0]
        rest, self._next = self._next[1:], []
        return Poll((self._request(node, name, rest),))

    def _request(self, node: NodeId, name: str, rest: list[str]) -> UnsentRequest:
        def build(version: int) -> Any:
            if name == _OF_GROUP:
                return group_settings_request(version, self._group, (name,))
            return broker_settings_request(version, node, (name,))

        def on_response(response: Any, _now: float) -> None:
            seconds = _seconds(response, name)
            if seconds is None:
                self._next = rest
            else:
                self._on_found(seconds)

        def on_failure(_error: MultilaneError, _now: float) -> None:
            self._next = rest

        return UnsentRequest(
            api=ApiKey.DESCRIBE_CONFIGS, build=build, on_response=on_response, on_failure=on_failure, node=node
        )


def _seconds(response: Any, name: str) -> float | None:
    values = [
        str(config.value)
        for result in response.results
        if not int(result.error_code)
        for config in result.configs
        if str(config.name) == name
    ]
    return int(values[0]) / 1000 if values and values[0].isdecimal() and int(values[0]) > 0 else None
