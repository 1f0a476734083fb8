"""The contract of request managers.

Thread: none (values and a protocol); used on the network thread.

A request manager is a state machine without I/O. The loop calls `poll(now)`; it returns the requests to send and the
time until its next poll. Responses arrive through the callbacks of each request. A manager never blocks: group
heartbeats and every other consumer wait behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np

    from multilane.errors import MultilaneError
    from multilane.types import NodeId
    from multilane.wire.messages import ApiKey


class Channel(NamedTuple):
    """One of the connections to a broker. A broker answers the requests of a connection one after the other, so
    requests that the broker may hold back have their own connection. It is closed with the consumer that is its
    `owner`."""

    owner: str
    number: int = 0


CONTROL: Final = Channel("control")

NEVER: Final = math.inf


def _unthrottled(_milliseconds: int) -> None:
    return None


@dataclass(slots=True, eq=False)
class RawResponse:
    """An unparsed response frame: Fetch responses are walked in place.

    The parser must call `throttled` with the response's throttle time.
    """

    frame: np.ndarray
    version: int
    correlation_id: int
    node: NodeId
    broker: str
    throttled: Callable[[int], None] = _unthrottled


@dataclass(slots=True, eq=False)
class UnsentRequest:
    """A request that waits for a connection. Exactly one of its two callbacks is called, once. Neither is called if the
    owner of its channel is closed before."""

    api: ApiKey
    build: Callable[[int], Any]
    on_response: Callable[[Any, float], None]
    on_failure: Callable[[MultilaneError, float], None]
    node: NodeId | None = None
    channel: Channel = CONTROL
    at_least: int = 0
    at_most: int | None = None
    timeout: float | None = None
    raw: bool = False
    client_id: str | None = None  # for the broker's logs and quotas; None: the connection's
    expires_at: float = NEVER


@dataclass(frozen=True, slots=True)
class Poll:
    """The requests that a manager wants to send now, and the seconds until its next poll at the latest."""

    requests: tuple[UnsentRequest, ...] = ()
    wait: float = NEVER


NOTHING: Final = Poll()


class RequestManager(Protocol):
    """What the loop polls. One manager may poll others and return what they want as one `Poll`."""

    def poll(self, now: float) -> Poll: ...


def poll_all(managers: Iterable[RequestManager], now: float) -> Poll:
    """Polls these managers, one after the other."""
    requests: list[UnsentRequest] = []
    wait = NEVER
    for manager in managers:
        poll = manager.poll(now)
        requests += poll.requests
        wait = min(wait, poll.wait)
    return Poll(tuple(requests), wait)


def then(request: UnsentRequest, touch: Callable[[], None]) -> None:
    """Make `touch` run before the callbacks of this request, so that its sender is polled again."""
    answered, failed = request.on_response, request.on_failure

    def on_response(response: Any, now: float) -> None:
        touch()
        answered(response, now)

    def on_failure(error: MultilaneError, now: float) -> None:
        touch()
        failed(error, now)

    request.on_response, request.on_failure = on_response, on_failure
