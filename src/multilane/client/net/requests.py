"""The one contract of everything that wants the network.

Thread: none (values and a protocol); used on the network thread.

A request manager is a state machine without I/O. The loop asks it `poll(now)`; it answers with the requests it wants
sent and with the time until it wants to be asked again. Answers come back through the callbacks of each request. A
manager never blocks: group heartbeats and every other consumer wait behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np

    from multilane.errors import MultilaneError
    from multilane.types import NodeId
    from multilane.wire.messages import ApiKey


class Channel(NamedTuple):
    """Which of the connections to a broker. A broker answers the requests of one connection one after the other, so
    what may wait has one of its own; `owner` goes with the consumer it belongs to."""

    owner: str
    number: int = 0


CONTROL: Final = Channel("control")

NEVER: Final = math.inf


def _unthrottled(_milliseconds: int) -> None:
    return None


@dataclass(slots=True, eq=False)
class RawResponse:
    """A response frame that nobody has parsed: Fetch responses are walked in place.

    Whoever parses it tells `throttled` for how long the broker wants silence.
    """

    frame: np.ndarray
    version: int
    correlation_id: int
    node: NodeId
    broker: str
    throttled: Callable[[int], None] = _unthrottled


@dataclass(slots=True, eq=False)
class UnsentRequest:
    """A request that waits for a connection. Exactly one of its two callbacks is called, once, unless the owner of its
    channel goes away before: then there is nobody to tell."""

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
    client_id: str | None = None  # whose it is, for the broker's logs and quotas; None: the connection's
    expires_at: float = NEVER


@dataclass(frozen=True, slots=True)
class Poll:
    """What a manager wants now, and in how many seconds it wants to be asked again at the latest."""

    requests: tuple[UnsentRequest, ...] = ()
    wait: float = NEVER


NOTHING: Final = Poll()


class RequestManager(Protocol):
    def poll(self, now: float) -> Poll: ...


def then(request: UnsentRequest, touch: Callable[[], None]) -> None:
    """Whoever sent a request has something to say once it is answered."""
    answered, failed = request.on_response, request.on_failure

    def on_response(response: Any, now: float) -> None:
        touch()
        answered(response, now)

    def on_failure(error: MultilaneError, now: float) -> None:
        touch()
        failed(error, now)

    request.on_response, request.on_failure = on_response, on_failure
