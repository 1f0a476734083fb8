"""Callers of a channel server that have not proved yet that they have the token: how many, and which are evicted.

Thread: none (pure); the server guards it with a lock.

Anything that reaches the port can open connections, so unauthenticated callers get little: a second for their first
message, a few for the whole handshake, and limited room. When the room is full, the oldest caller that has sent nothing
is evicted, else the oldest of all. So silent callers never displace one that sends its message at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

C = TypeVar("C")

FIRST_MESSAGE_SECONDS: Final = 1.0
HANDSHAKE_SECONDS: Final = 5.0
MAX_CALLERS: Final = 256
MAX_CALLERS_PER_ADDRESS: Final = 64


@dataclass(slots=True)
class _Caller:
    host: str
    since: float
    has_sent: bool = False


@dataclass(slots=True)
class UnauthenticatedCallers(Generic[C]):
    max_callers: int = MAX_CALLERS
    max_per_address: int = MAX_CALLERS_PER_ADDRESS
    _callers: dict[C, _Caller] = field(default_factory=dict)  # oldest first

    def __len__(self) -> int:
        return len(self._callers)

    def add(self, caller: C, host: str, now: float) -> C | None:
        """Returns the caller that is evicted for it, if any."""
        evicted = self._surplus(host)
        if evicted is not None:
            del self._callers[evicted]
        self._callers[caller] = _Caller(host, now)
        return evicted

    def note_message(self, caller: C) -> None:
        """It has sent its first message."""
        if caller in self._callers:
            self._callers[caller].has_sent = True

    def remove(self, caller: C) -> bool:
        """It has proved its identity, or is gone. False if it was evicted before."""
        return self._callers.pop(caller, None) is not None

    def pop_overdue(self, now: float) -> list[C]:
        """Remove and return the callers that have taken too long."""
        overdue = [caller for caller, entry in self._callers.items() if now - entry.since >= _time_limit(entry)]
        for caller in overdue:
            del self._callers[caller]
        return overdue

    def _surplus(self, host: str) -> C | None:
        of_host = [caller for caller, entry in self._callers.items() if entry.host == host]
        if len(of_host) >= self.max_per_address:
            return self._first_to_go(iter(of_host))
        return self._first_to_go(iter(self._callers)) if len(self._callers) >= self.max_callers else None

    def _first_to_go(self, callers: Iterator[C]) -> C:
        oldest = next(callers)
        if not self._callers[oldest].has_sent:
            return oldest
        return next((caller for caller in callers if not self._callers[caller].has_sent), oldest)


def _time_limit(entry: _Caller) -> float:
    return HANDSHAKE_SECONDS if entry.has_sent else FIRST_MESSAGE_SECONDS
