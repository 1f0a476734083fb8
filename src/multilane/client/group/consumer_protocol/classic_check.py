"""Whether a group has live members of the classic protocol, which a KIP-848 heartbeat would convert.

Thread: none (pure state machine); belongs to a membership, on the network thread.

Used with `group.protocol=auto` only. The coordinator is asked (DescribeGroups) right before each heartbeat that joins,
so that the answer is a round trip old at most. A group that is empty, unknown or of the newer protocol is clear: nobody
loses a strategy that they chose. A refusal is clear too: the heartbeat gets the same one, and says what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from multilane.client.net.request_state import RequestBackoff, RequestState
from multilane.client.net.requests import UnsentRequest
from multilane.errors import GroupRefused, MultilaneError, broker_error
from multilane.wire.compose_groups import DESCRIBE_GROUPS_AT_LEAST, describe_groups_request
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.group.membership import Coordinators
    from multilane.types import NodeId

_NOBODY: Final = frozenset({"", "Dead", "Empty"})


class LiveClassicGroup(GroupRefused):
    """Others are in the group, by the classic protocol. `assignor` is what they chose, where they have."""

    def __init__(self, group: str, members: int, assignor: str) -> None:
        chosen = f" and assignor {assignor}" if assignor else ""
        super().__init__(
            f"group {group} is a classic group with {members} members{chosen} "
            "(group.protocol=consumer would convert it)"
        )
        self.assignor = assignor


class ClassicCheck:
    def __init__(
        self,
        group: str,
        coordinators: Coordinators,
        backoff: RequestBackoff,
        found: Callable[[LiveClassicGroup, float], None],
    ) -> None:
        self._group = group
        self._coordinators = coordinators
        self._state = RequestState(backoff)
        self._found = found
        self._talk = 0
        self.is_clear = False

    def start_over(self) -> None:
        """The next join needs an answer of its own; one that is under way is too old."""
        self.is_clear = False
        self._talk += 1
        if self._state.in_flight:
            self._state.succeeded()

    def wait(self, now: float) -> float:
        return self._state.wait(now)

    def ask(self, node: NodeId) -> UnsentRequest:
        self._state.sent()
        talk = self._talk

        def on_response(response: Any, now: float) -> None:
            if talk == self._talk:
                self._on_response(node, response, now)

        def on_failure(error: MultilaneError, now: float) -> None:
            if talk == self._talk:
                self._on_failure(node, error, now)

        return UnsentRequest(
            api=ApiKey.DESCRIBE_GROUPS,
            build=lambda version: describe_groups_request(version, (self._group,)),
            on_response=on_response,
            on_failure=on_failure,
            node=node,
            at_least=DESCRIBE_GROUPS_AT_LEAST,
        )

    def _on_response(self, node: NodeId, response: Any, now: float) -> None:
        told = next((g for g in response.groups if str(g.group_id) == self._group), None)
        code = 0 if told is None else int(told.error_code)
        if code:
            self._on_failure(node, broker_error(code, f"DescribeGroups of group {self._group}"), now)
            return
        self._state.succeeded()
        if told is None or (str(told.group_state) in _NOBODY and not told.members):
            self.is_clear = True
        else:
            self._found(LiveClassicGroup(self._group, len(told.members), str(told.protocol_data)), now)

    def _on_failure(self, node: NodeId, error: MultilaneError, now: float) -> None:
        if error.retriable:
            self._coordinators.forget(self._group, node)
            self._state.failed(now)
        else:
            self._state.succeeded()
            self.is_clear = True
