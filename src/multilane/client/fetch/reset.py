"""Applies `auto.offset.reset` to a partition that has no valid position.

Thread: none (pure; the wall clock is passed in).
"""

from __future__ import annotations

from collections.abc import Callable

from multilane.client.fetch.cursor import Lookup
from multilane.config.reset import OffsetReset, ResetPolicy
from multilane.wire.compose import EARLIEST, LATEST


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
        return f"auto.offset.reset is {self._reset.policy.value}"
