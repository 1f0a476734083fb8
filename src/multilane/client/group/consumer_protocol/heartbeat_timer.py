"""The timing of heartbeats.

Thread: none (pure); belongs to the membership that made it, on the network thread.

A heartbeat is sent shortly before the interval set by the coordinator is over, at once when there are changes, after a
back-off when one failed, and one at a time. A member that has just joined and has no partitions yet sends them more
often for some seconds: others are releasing its partitions, and partitions without a reader wait for that heartbeat. An
answer counts only for the membership that its request was sent for: leaving and fencing begin another one, and answers
still in flight are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from multilane.client.group.membership import HEARTBEAT_FRACTION, UNASSIGNED_FOR, UNASSIGNED_INTERVAL
from multilane.client.net.request_state import RequestBackoff, RequestState
from multilane.client.net.requests import UnsentRequest
from multilane.errors import MultilaneError
from multilane.types import NodeId
from multilane.wire.compose_members import (
    HEARTBEAT_AT_LEAST,
    REGEX_AT_LEAST,
    MemberHeartbeat,
    member_heartbeat_request,
)
from multilane.wire.messages import ApiKey

FIRST_INTERVAL: Final = 5.0  # until the coordinator sends its own
SHORTEST_INTERVAL: Final = 0.05
LONGEST_INTERVAL: Final = 60.0
_INTERVALS: Final = 3


class HeartbeatTimer:
    def __init__(self, backoff: RequestBackoff) -> None:
        self.interval = FIRST_INTERVAL
        self.is_urgent = False
        self._backoff = backoff
        self._state = RequestState(backoff)
        self._due = 0.0
        self._sent_at = 0.0
        self._confirmed_at = inf  # when the last answered heartbeat was sent
        self._unassigned_until = 0.0
        self._membership = 0

    def wait(self, now: float) -> float:
        """Seconds until the next heartbeat; infinite while an answer is awaited."""
        rest = self._state.wait(now)
        return rest if self.is_urgent else max(rest, self._due - now)

    def sent(self, now: float) -> int:
        """A heartbeat is sent. Returns the number for `is_current` when its answer arrives."""
        self._state.sent()
        self.is_urgent = False
        self._due = now + HEARTBEAT_FRACTION * self.interval
        self._sent_at = now
        return self._membership

    def is_current(self, membership: int) -> bool:
        return membership == self._membership

    def answered(self, interval: float) -> None:
        self._state.succeeded()
        self._confirmed_at = self._sent_at
        if interval > 0:
            self.interval = min(max(interval, SHORTEST_INTERVAL), LONGEST_INTERVAL)

    def fenced_after(self, session: float | None) -> float:
        """An unknown session timeout is assumed to be three heartbeat intervals."""
        return self._confirmed_at + (session or _INTERVALS * self.interval)

    def joined(self, now: float) -> None:
        self._unassigned_until = now + UNASSIGNED_FOR

    def unassigned(self, now: float) -> None:
        if now < self._unassigned_until:
            self._due = min(self._due, now + UNASSIGNED_INTERVAL)

    def failed(self, now: float) -> None:
        """The next heartbeat is sent as soon as the back-off allows."""
        self._state.failed(now)
        self.is_urgent = True

    def fenced(self, now: float) -> None:
        """Rejoin without delay the first time; after repeated fencing with a back-off."""
        self._membership += 1
        self._state.failed(now)
        self.is_urgent = True
        if self._state.failures == 1:
            self._state.rest_until(now)

    def start_over(self) -> None:
        self._membership += 1
        self._state = RequestState(self._backoff)
        self.is_urgent = True


def heartbeat_to(
    node: NodeId,
    heartbeat: MemberHeartbeat,
    on_response: Callable[[Any, float], None],
    on_failure: Callable[[MultilaneError, float], None],
) -> UnsentRequest:
    return UnsentRequest(
        api=ApiKey.CONSUMER_GROUP_HEARTBEAT,
        build=lambda version: member_heartbeat_request(version, heartbeat),
        on_response=on_response,
        on_failure=on_failure,
        node=node,
        at_least=REGEX_AT_LEAST if heartbeat.regex else HEARTBEAT_AT_LEAST,
    )
