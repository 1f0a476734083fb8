"""Logs calls that exceed maxProcessingTime: one line for many of them.

Thread: loop.

There is one for all lanes of a consumer. Owns only the time of its last line.
"""

from __future__ import annotations

from typing import Final

from multilane.lanes.lane import Lane
from multilane.logs import logger
from multilane.rate_limit import RateLimit

log = logger(__name__)

_EVERY: Final = 10.0  # seconds between two lines


class SlowCalls:
    def __init__(self) -> None:
        self._rate_limit = RateLimit(_EVERY)

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
