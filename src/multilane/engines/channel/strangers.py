"""Who has called a desk and not yet proved to know the token: how many there may be, and who has to go.

Thread: none (pure); the desk guards it with a lock.

Anyone who reaches the port can open connections, so callers that are still strangers get little: a second for their
first line, a few for the whole handshake, and limited room. When there is no room the oldest caller that has said
nothing goes, else the oldest of all: a caller that speaks at once is never turned away for those that are silent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

C = TypeVar("C")

FIRST_LINE_SECONDS: Final = 1.0
HANDSHAKE_SECONDS: Final = 5.0
MOST: Final = 256
MOST_OF_ONE_ADDRESS: Final = 64


@dataclass(slots=True)
class _Stranger:
    host: str
    came_at: float
    has_spoken: bool = False


@dataclass(slots=True)
class UnprovenCallers(Generic[C]):
    most: int = MOST
    most_of_one: int = MOST_OF_ONE_ADDRESS
    _known: dict[C, _Stranger] = field(default_factory=dict)  # in the order in which they came

    def __len__(self) -> int:
        return len(self._known)

    def come(self, caller: C, host: str, now: float) -> C | None:
        """Takes a caller in. Gives the one that has to go for it, if any."""
        evicted = self._surplus(host)
        if evicted is not None:
            del self._known[evicted]
        self._known[caller] = _Stranger(host, now)
        return evicted

    def speak(self, caller: C) -> None:
        """It has sent its first line."""
        if caller in self._known:
            self._known[caller].has_spoken = True

    def leave(self, caller: C) -> bool:
        """It is known now, or gone. False if it had to go before."""
        return self._known.pop(caller, None) is not None

    def overdue(self, now: float) -> list[C]:
        """Those that have taken too long. They are forgotten."""
        late = [caller for caller, one in self._known.items() if now - one.came_at >= _seconds_of(one)]
        for caller in late:
            del self._known[caller]
        return late

    def _surplus(self, host: str) -> C | None:
        of_host = [caller for caller, one in self._known.items() if one.host == host]
        if len(of_host) >= self.most_of_one:
            return self._first_to_go(iter(of_host))
        return self._first_to_go(iter(self._known)) if len(self._known) >= self.most else None

    def _first_to_go(self, callers: Iterator[C]) -> C:
        oldest = next(callers)
        if not self._known[oldest].has_spoken:
            return oldest
        return next((caller for caller in callers if not self._known[caller].has_spoken), oldest)


def _seconds_of(one: _Stranger) -> float:
    return HANDSHAKE_SECONDS if one.has_spoken else FIRST_LINE_SECONDS
