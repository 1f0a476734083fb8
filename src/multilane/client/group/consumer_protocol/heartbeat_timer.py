"""When heartbeats go out.

Thread: none (pure); belongs to the membership that made it, on the network thread.

A little before the interval that the coordinator asks for is over, at once when there is something to say, after a
back-off when one failed, and one at a time. A member that has just joined and has nothing yet asks more often for some
seconds: others are giving up what will be its own, and what nobody reads waits for this very heartbeat. An answer
counts only while the conversation it belongs to goes on: whoever leaves or is fenced starts another, and what is still
under way is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from multilane.client.group.membership import EARLY, HUNGRY_FOR, HUNGRY_PACE
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

FIRST_INTERVAL: Final = 5.0  # until the coordinator has told its own
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
        self._heard_at = inf  # when the last one that was answered had been sent
        self._hungry_until = 0.0
        self._talk = 0

    def wait(self, now: float) -> float:
        """Seconds until the next one goes; infinite while an answer is awaited."""
        rest = self._state.wait(now)
        return rest if self.is_urgent else max(rest, self._due - now)

    def sent(self, now: float) -> int:
        """One goes out. The number is for `is_current` when the answer comes."""
        self._state.sent()
        self.is_urgent = False
        self._due = now + EARLY * self.interval
        self._sent_at = now
        return self._talk

    def is_current(self, talk: int) -> bool:
        return talk == self._talk

    def answered(self, interval: float) -> None:
        self._state.succeeded()
        self._heard_at = self._sent_at
        if interval > 0:
            self.interval = min(max(interval, SHORTEST_INTERVAL), LONGEST_INTERVAL)

    def fenced_after(self, session: float | None) -> float:
        """Without a word about the session it is taken to last three of the intervals that the coordinator asks for."""
        return self._heard_at + (session or _INTERVALS * self.interval)

    def joined(self, now: float) -> None:
        self._hungry_until = now + HUNGRY_FOR

    def empty_handed(self, now: float) -> None:
        if now < self._hungry_until:
            self._due = min(self._due, now + HUNGRY_PACE)

    def failed(self, now: float) -> None:
        """The next one comes as soon as the back-off allows."""
        self._state.failed(now)
        self.is_urgent = True

    def fenced(self, now: float) -> None:
        """Join again without delay; but not for ever so, if that is all the coordinator answers."""
        self._talk += 1
        self._state.failed(now)
        self.is_urgent = True
        if self._state.failures == 1:
            self._state.rest_until(now)

    def start_over(self) -> None:
        self._talk += 1
        self._state = RequestState(self._backoff)
        self.is_urgent = True


def heartbeat_to(
    node: NodeId,
    said: MemberHeartbeat,
    on_response: Callable[[Any, float], None],
    on_failure: Callable[[MultilaneError, float], None],
) -> UnsentRequest:
    return UnsentRequest(
        api=ApiKey.CONSUMER_GROUP_HEARTBEAT,
        build=lambda version: member_heartbeat_request(version, said),
        on_response=on_response,
        on_failure=on_failure,
        node=node,
        at_least=REGEX_AT_LEAST if said.regex else HEARTBEAT_AT_LEAST,
    )
