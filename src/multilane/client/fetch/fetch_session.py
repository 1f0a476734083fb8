"""The fetch session with one broker (KIP-227): tell it only what has changed.

Thread: none (pure); owned by a fetch manager on the network thread.

A session starts with a full request (id 0, epoch 0). The broker's answer gives it an id; from then on a request names
only partitions whose offset, epoch, size or topic id changed, and those to forget. The broker counts epochs with us.
Any doubt (an error of the session, a lost connection) ends in a new full request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from multilane.wire.compose import FetchItem, SessionStep

FETCH_SESSION_ID_NOT_FOUND: Final = 70
INVALID_FETCH_SESSION_EPOCH: Final = 71

_NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = (1 << 31) - 1

SessionKey = tuple[str, UUID | None, int]


def key_of(item: FetchItem) -> SessionKey:
    return (item.topic, item.topic_id, item.partition)


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """What to put into the next request: the items to name, those to forget, and the session's numbers."""

    step: SessionStep
    named: tuple[FetchItem, ...]
    forgotten: tuple[FetchItem, ...]


class FetchSession:
    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._items: dict[SessionKey, FetchItem] = {}

    @property
    def is_open(self) -> bool:
        return self._id != _NO_SESSION

    def next_request(self, wanted: Mapping[SessionKey, FetchItem]) -> SessionRequest:
        """The request that makes the broker fetch exactly `wanted`."""
        if not self.is_open:
            self._items = dict(wanted)
            return SessionRequest(SessionStep(_NO_SESSION, _FIRST_EPOCH), tuple(wanted.values()), ())
        named = tuple(item for key, item in wanted.items() if self._items.get(key) != item)
        forgotten = tuple(item for key, item in self._items.items() if key not in wanted)
        self._items = dict(wanted)
        return SessionRequest(SessionStep(self._id, self._epoch), named, forgotten)

    def on_answer(self, session_id: int) -> None:
        """The broker took the request. Id 0: it keeps no session for us."""
        if session_id <= _NO_SESSION:
            self.reset()
        elif session_id != self._id:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def reset(self) -> None:
        """Start over with a full request."""
        self._id, self._epoch = _NO_SESSION, _FIRST_EPOCH
        self._items = {}
