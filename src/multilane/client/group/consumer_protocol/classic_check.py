"""Checks whether a group has live members of the classic protocol, which a KIP-848 heartbeat would convert.

Thread: none (pure state machine); belongs to a membership, on the network thread.

Used with `group.protocol=auto` only. DescribeGroups goes to the coordinator right before each joining heartbeat, so its
answer is one round trip old at most. A group that is empty, unknown or of the newer protocol is clear: no member loses
a configured strategy. A refusal is not: joining a group does not need the permission to describe it, so the heartbeat
could convert a group that this client may not look at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from multilane.client.net.request_state import RequestBackoff, RequestState
from multilane.client.net.requests import UnsentRequest
from multilane.errors import AuthenticationError, GroupRefused, MultilaneError, broker_error
from multilane.wire.compose_groups import DESCRIBE_GROUPS_AT_LEAST, describe_groups_request
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.group.membership import Coordinators
    from multilane.types import NodeId

_NOT_FOUND: Final = 69  # GROUP_ID_NOT_FOUND
_NO_MEMBERS: Final = frozenset({"", "Dead", "Empty"})


class LiveClassicGroup(GroupRefused):
    """The group has members of the classic protocol. `assignor` is their assignor, if they have agreed on one."""

    def __init__(self, group: str, members: int, assignor: str) -> None:
        chosen = f" and assignor {assignor}" if assignor else ""
        super().__init__(
            f"group {group} is a classic group with {members} members{chosen} "
            "(group.protocol=consumer would convert it)"
        )
        self.assignor = assignor


class HiddenGroup(GroupRefused):
    """The brokers do not say whether the group has members of the classic protocol."""

    def __init__(self, group: str, error: MultilaneError) -> None:
        super().__init__(
            f"cannot find out whether group {group} has classic members: {error}. Allow Describe on the group, or set "
            "group.protocol to consumer, which converts a classic group"
        )


class ClassicCheck:
    def __init__(
        self,
        group: str,
        coordinators: Coordinators,
        backoff: RequestBackoff,
        found: Callable[[LiveClassicGroup | HiddenGroup, float], None],
        on_login_refused: Callable[[MultilaneError], None],
    ) -> None:
        self._on_login_refused = on_login_refused
        self._group = group
        self._coordinators = coordinators
        self._state = RequestState(backoff)
        self._found = found
        self._check = 0
        self.is_clear = False

    def start_over(self) -> None:
        """The next join needs a new answer; one in flight is too old."""
        self.is_clear = False
        self._check += 1
        if self._state.in_flight:
            self._state.succeeded()

    def wait(self, now: float) -> float:
        return self._state.wait(now)

    def ask(self, node: NodeId) -> UnsentRequest:
        self._state.sent()
        check = self._check

        def on_response(response: Any, now: float) -> None:
            if check == self._check:
                self._on_response(node, response, now)

        def on_failure(error: MultilaneError, now: float) -> None:
            if check == self._check:
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
        description = next((g for g in response.groups if str(g.group_id) == self._group), None)
        code = 0 if description is None else int(description.error_code)
        if code == _NOT_FOUND:
            description = None
        elif code:
            self._on_failure(node, broker_error(code, f"DescribeGroups of group {self._group}"), now)
            return
        self._state.succeeded()
        if description is None or (str(description.group_state) in _NO_MEMBERS and not description.members):
            self.is_clear = True
        else:
            self._found(LiveClassicGroup(self._group, len(description.members), str(description.protocol_data)), now)

    def _on_failure(self, node: NodeId, error: MultilaneError, now: float) -> None:
        if error.retriable or isinstance(error, AuthenticationError):
            if not error.retriable:
                self._on_login_refused(error)
            self._coordinators.forget(self._group, node)
            self._state.failed(now)
        else:
            self._state.succeeded()
            self._found(HiddenGroup(self._group, error), now)
