"""Calls that take longer than they may: cancelled if possible, else abandoned, and another lane stands in.

Thread: loop.

A coroutine is cancelled; if it swallows that, it is abandoned like a plain function, which nobody can cancel. The key
of an abandoned call stays blocked until the call ends, and a lane more works for the other keys. Bounded: there are at
most as many stand-ins as lanes. Once those hang too the partition stands still, and the log says so until a call ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from multilane.clock import Clock
from multilane.lanes.lane import Lane
from multilane.lanes.work import Work
from multilane.logs import logger

log = logger(__name__)

_GRACE: Final = 1.0  # seconds for a coroutine that was cancelled
_REMIND_EVERY: Final = 30.0


class Overdue:
    def __init__(self, place: object, work: Work, clock: Clock, stand_in: Callable[[], object]) -> None:
        """`stand_in` is called when there may be a lane more."""
        self._place = place
        self._work = work
        self._clock = clock
        self._stand_in = stand_in
        self._remind_at = inf
        self.substitutes = 0

    def sweep(self, lanes: Iterable[Lane], wanted: int) -> None:
        now, limit = self._clock.monotonic(), self._work.max_processing_time
        stuck: list[Lane] = []
        for lane in lanes:
            if lane.is_beyond(now, limit):
                self._give_up_call(lane, now)
            if lane.is_stuck(now, _GRACE):
                stuck.append(lane)
        for lane in stuck:
            lane.hangs = True
            self._work.gate.hangs(lane)
            self._work.watch.caution.hangs(lane.records)
            if not lane.has_substitute and self.substitutes < wanted:
                self._abandon(lane, wanted)
        self._tell_if_standing(len(stuck), 2 * wanted, now)

    def _give_up_call(self, lane: Lane, now: float) -> None:
        lane.is_overdue = True
        lane.overdue_since = now
        work = self._work
        work.slow_calls.tell(work.listener, work.max_processing_time, lane, now)
        if lane.cancels and lane.task is not None:
            lane.task.cancel()

    def _abandon(self, lane: Lane, wanted: int) -> None:
        self.substitutes += 1
        lane.has_substitute = True
        if lane.cancels:
            told = "%s ignores its cancellation at %s. Its key waits, and a substitute lane takes over (%d of %d)"
            log.error(told, self._work.listener, _first(lane), self.substitutes, wanted)
        self._stand_in()

    def dismiss_substitute(self, lane: Lane) -> None:
        """The call has ended after all."""
        lane.has_substitute = False
        self.substitutes -= 1

    def _tell_if_standing(self, stuck: int, most: int, now: float) -> None:
        if stuck < most:
            if self._remind_at < inf:
                log.warning("%s resumes: a hung call has returned", self._place)
            self._remind_at = inf
        elif self._remind_at == inf or now >= self._remind_at:
            self._remind_at = now + _REMIND_EVERY
            told = (
                "%s stands still: %d calls of %s hang, on every lane and every substitute. No further record is "
                "handled until one returns. Make the function return within maxProcessingTime (%g s), and restart the "
                "process"
            )
            log.error(told, self._place, stuck, self._work.listener, self._work.max_processing_time)


def _first(lane: Lane) -> object:
    return lane.records[0] if lane.records else None
