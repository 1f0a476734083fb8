"""Calls of a consumer that exceed maxProcessingTime: logs one line for many of them, and limits the substitute lanes.

Thread: loop.

There is one for all lanes of a consumer in a process, because threads that hang are a burden of the process. Owns the
number of substitute lanes and the times of its last lines.
"""

from __future__ import annotations

from typing import Final

from multilane.lanes.lane import Lane
from multilane.logs import logger
from multilane.rate_limit import RateLimit

log = logger(__name__)

MOST_SUBSTITUTES: Final = 1_000  # a hung `def` function keeps a thread: about 50 KiB
_EVERY: Final = 10.0  # seconds between two lines
_HUNG_EVERY: Final = 30.0


class SlowCalls:
    def __init__(self, most_substitutes: int = MOST_SUBSTITUTES) -> None:
        self.most_substitutes = most_substitutes
        self.substitutes = 0  # in all partitions
        self._rate_limit = RateLimit(_EVERY)
        self._hung = RateLimit(_HUNG_EVERY)

    def may_substitute(self, substitutes: int, lanes: int) -> bool:
        """Whether a partition with so many substitutes and lanes gets one more. As many substitutes as lanes are never
        refused: partitions that hang must not stop one in which few calls do."""
        return substitutes < lanes or self.substitutes < self.most_substitutes

    def note(self, listener: object, limit: float, lane: Lane, now: float) -> None:
        many = self._rate_limit.due(now)
        if not many:
            return
        when = "" if lane.cancels else " when the call ends; its key waits until then"
        log.warning(
            "%s has been processing %s for longer than maxProcessingTime (%gs); the call counts as failed%s. Such "
            "calls since the last warning: %d. Raise maxProcessingTime if calls may take this long",
            *(listener, next(iter(lane.records), None), limit, when, many),
        )

    def must_log_hung(self, now: float) -> bool:
        """Whether a line about calls that hang is due."""
        return self._hung.due(now) > 0
