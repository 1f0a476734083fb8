"""Decides when a request may be sent: retry and back-off in one place.

Thread: none (pure); each instance belongs to the manager that created it, on the network thread.

`RequestBackoff` returns the wait after the n-th failure. `RequestState` tracks whether a request is in flight and when
the next one may be sent. Time and randomness are parameters.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_LARGEST_EXPONENT: Final = 30


@dataclass(frozen=True, slots=True)
class RequestBackoff:
    """Exponential with jitter: `initial * 2**failures`, at most `maximum`, spread by +-`jitter`."""

    initial: float
    maximum: float
    jitter: float = 0.2
    draw: Callable[[], float] = field(default=random.random, repr=False, compare=False)

    def delay(self, failures: int) -> float:
        if failures <= 0:
            return 0.0
        plain = min(self.initial * 2.0 ** min(failures - 1, _LARGEST_EXPONENT), self.maximum)
        return plain * (1.0 + self.jitter * (2.0 * self.draw() - 1.0))


class RequestState:
    """One kind of request of one manager: at most one in flight, and a wait after each failure."""

    __slots__ = ("_backoff", "_failures", "_in_flight", "_not_before")

    def __init__(self, backoff: RequestBackoff) -> None:
        self._backoff = backoff
        self._failures = 0
        self._in_flight = False
        self._not_before = 0.0

    @property
    def in_flight(self) -> bool:
        return self._in_flight

    @property
    def failures(self) -> int:
        return self._failures

    def may_send(self, now: float) -> bool:
        return not self._in_flight and now >= self._not_before

    def wait(self, now: float) -> float:
        """Seconds until `may_send` becomes true by time alone; infinite while a request is in flight."""
        return float("inf") if self._in_flight else max(0.0, self._not_before - now)

    def sent(self) -> None:
        self._in_flight = True

    def succeeded(self) -> None:
        self._in_flight = False
        self._failures = 0
        self._not_before = 0.0

    def rest_until(self, time: float) -> None:
        """Send nothing before this time."""
        self._not_before = time

    def failed(self, now: float) -> None:
        self._in_flight = False
        self._failures += 1
        self._not_before = now + self._backoff.delay(self._failures)
