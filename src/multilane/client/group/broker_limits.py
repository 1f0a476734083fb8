"""Asks the coordinator once which session timeouts it allows, only to log advice.

Thread: none (pure state machine); owned by the network thread, one per classic membership.

A client that may not read the broker's settings gets no advice: nothing is logged and nothing fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from multilane.client.net.requests import NOTHING, Poll, UnsentRequest
from multilane.config.tuning import SessionLimits
from multilane.wire.compose_groups import broker_settings_request
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.group.membership import Coordinators
    from multilane.errors import MultilaneError

_SMALLEST: Final = "group.min.session.timeout.ms"
_LARGEST: Final = "group.max.session.timeout.ms"


class BrokerLimits:
    def __init__(self, group: str, coordinators: Coordinators, on_found: Callable[[SessionLimits], None]) -> None:
        self._group = group
        self._coordinators = coordinators
        self._on_found = on_found
        self._asked = False

    def poll(self, now: float) -> Poll:
        node = None if self._asked else self._coordinators.of(self._group)
        if node is None:
            return NOTHING
        self._asked = True
        request = UnsentRequest(
            api=ApiKey.DESCRIBE_CONFIGS,
            build=lambda version: broker_settings_request(version, node, (_SMALLEST, _LARGEST)),
            on_response=self._on_response,
            on_failure=self._on_failure,
            node=node,
        )
        return Poll((request,))

    def _on_response(self, response: Any, _now: float) -> None:
        values = {
            str(config.name): str(config.value)
            for result in response.results
            if not int(result.error_code)
            for config in result.configs
        }
        smallest, largest = values.get(_SMALLEST, ""), values.get(_LARGEST, "")
        if smallest.isdecimal() and largest.isdecimal():
            self._on_found(SessionLimits(int(smallest) / 1000, int(largest) / 1000))

    def _on_failure(self, _error: MultilaneError, _now: float) -> None:
        return
