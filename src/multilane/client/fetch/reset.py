"""Applies `auto.offset.reset` or `lost.position.reset` to a partition that has no valid position.

Thread: none (pure; the wall clock is passed in).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from multilane.client.fetch.cursor import Lookup
from multilane.config.reset import OffsetReset, ResetPolicy
from multilane.wire.compose import EARLIEST, LATEST

_WORDS: Final = {
    ResetPolicy.NONE: "no position is chosen",
    ResetPolicy.EARLIEST: "continuing where the log begins",
    ResetPolicy.LATEST: "continuing at its end: existing records are skipped",
    ResetPolicy.BY_DURATION: "continuing by time, as auto.offset.reset says",
}


class ResetRule:
    def __init__(self, reset: OffsetReset, wall: Callable[[], float]) -> None:
        self._reset = reset
        self._wall = wall

    def lookup(self, reason: str) -> Lookup | None:
        """The lookup to make; None if the policy is `none` and the application must decide."""
        match self._reset.policy:
            case ResetPolicy.NONE:
                return None
            case ResetPolicy.EARLIEST:
                return Lookup(EARLIEST, reason)
            case ResetPolicy.LATEST:
                return Lookup(LATEST, reason)
            case ResetPolicy.BY_DURATION:
                return Lookup(max(0, int((self._wall() - self._reset.duration) * 1_000)), reason)

    def __str__(self) -> str:
        return _WORDS[self._reset.policy]
