"""The fetch session with one broker (KIP-227): requests name only what has changed.

Thread: none (pure); owned by a fetch connection on the network thread.

A session starts with a full request (id 0, epoch 0). The broker's answer gives it an id; from then on a request names
only partitions whose offset, epoch, size or topic id changed, and those to forget. The broker counts epochs with us.
Any doubt (a session error, a lost connection) leads to a new full request.

Wanted items change one by one (`put`, `drop`), so the cost of a request depends on the changes and not on the number of
partitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from multilane.client.net.requests import UnsentRequest
from multilane.types import NodeId
from multilane.wire.compose import FETCH_AT_LEAST, FetchClass, FetchItem, SessionStep, fetch_request
from multilane.wire.messages import ApiKey

FETCH_SESSION_ID_NOT_FOUND: Final = 70
INVALID_FETCH_SESSION_EPOCH: Final = 71

_NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = (1 << 31) - 1

SessionKey = tuple[str, UUID | None, int]


def key_of(item: FetchItem) -> SessionKey:
    return (item.topic, item.topic_id, item.partition)


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The next request: items to name, items to forget, and the session's id and epoch."""

    step: SessionStep
    named: tuple[FetchItem, ...]
    forgotten: tuple[FetchItem, ...]


class FetchSession:
    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._wanted: dict[SessionKey, FetchItem] = {}  # oldest put first
        self._in_session: dict[SessionKey, FetchItem] = {}  # the broker's view of the session
        self._touched: dict[SessionKey, None] = {}  # where the two may differ, in order

    @property
    def is_open(self) -> bool:
        return self._id != _NO_SESSION

    def put(self, item: FetchItem) -> None:
        key = key_of(item)
        self._wanted.pop(key, None)
        self._wanted[key] = item
        self._touched[key] = None

    def drop(self, key: SessionKey) -> None:
        if self._wanted.pop(key, None) is not None:
            self._touched[key] = None

    def next_request(self) -> SessionRequest:
        """The request that makes the broker fetch exactly what is wanted."""
        if not self.is_open:
            self._in_session, self._touched = dict(self._wanted), {}
            return SessionRequest(SessionStep(_NO_SESSION, _FIRST_EPOCH), tuple(self._wanted.values()), ())
        changed = [key for key in self._touched if self._in_session.get(key) != self._wanted.get(key)]
        forgotten = tuple(self._in_session.pop(key) for key in changed if key not in self._wanted)
        named = tuple(self._wanted[key] for key in changed if key in self._wanted)
        self._in_session.update((key_of(item), item) for item in named)
        self._touched = {}
        return SessionRequest(SessionStep(self._id, self._epoch), named, forgotten)

    def on_answer(self, session_id: int) -> None:
        """The broker accepted the request. Id 0: it keeps no session for us."""
        if session_id <= _NO_SESSION:
            self.reset()
        elif session_id != self._id:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def reset(self) -> None:
        """Start over with a full request."""
        self._id, self._epoch = _NO_SESSION, _FIRST_EPOCH

    def close(self) -> SessionStep | None:
        """The step that closes the session at the broker; None if there is no session."""
        step = SessionStep(self._id, _FINAL_EPOCH) if self.is_open else None
        self.reset()
        return step


def close_request(node: NodeId, step: SessionStep) -> UnsentRequest:
    """Closes a session at its broker. The answer is ignored."""
    nothing = FetchClass(0, 0, 0, False, "")
    return UnsentRequest(
        api=ApiKey.FETCH,
        build=lambda version: fetch_request(version, nothing, (), (), step),
        on_response=lambda _response, _now: None,
        on_failure=lambda _error, _now: None,
        node=node,
        at_least=FETCH_AT_LEAST,
        raw=True,
    )
