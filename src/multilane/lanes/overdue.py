"""Calls that exceed maxProcessingTime: cancelled if possible, otherwise abandoned and replaced by a substitute lane.

Thread: loop.

A coroutine is cancelled; if it ignores that, it is abandoned like a plain function, which cannot be cancelled. The key
of an abandoned call stays blocked until the call ends, and a substitute lane handles the other keys. Bounded: there are
at most as many substitutes as lanes. Once they hang, too, the partition stands still, and the log says so until a call
ends. Lanes that wait for a last step that hangs are replaced like those of abandoned calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import Final

from multilane.clock import Clock
from multilane.lanes.lane import Lane
from multilane.lanes.work import Work
from multilane.logs import logger

log = logger(__name__)

_GRACE: Final = 1.0  # seconds for a cancelled coroutine to end
_REMIND_EVERY: Final = 30.0


class Overdue:
    def __init__(self, queue: object, work: Work, clock: Clock, add_substitute: Callable[[], object]) -> None:
        """`queue` names the partition in log lines. `add_substitute` starts a substitute lane."""
        self._queue = queue
        self._work = work
        self._clock = clock
        self._add_substitute = add_substitute
        self._remind_at = inf
        self.substitutes = 0

    def sweep(self, lanes: Collection[Lane], wanted: int) -> None:
        now, limit = self._clock.monotonic(), self._work.max_processing_time
        stuck: list[Lane] = []
        for lane in lanes:
            if lane.is_beyond(now, limit):
                self._expire_call(lane, now)
            if lane.is_stuck(now, _GRACE):
                stuck.append(lane)
        for lane in stuck:
            lane.hangs = True
            self._work.gate.hangs(lane)
            self._work.watch.hangs(lane.records)
            if not lane.has_substitute and self.substitutes < wanted:
                self._abandon(lane, wanted)
        stuck += self._in_last_steps(lanes, wanted, now)
        self._log_standstill(len(stuck), 2 * wanted, now)

    def _in_last_steps(self, lanes: Collection[Lane], wanted: int, now: float) -> list[Lane]:
        """Lanes whose call has failed, and the last step for its record does not end."""
        work = self._work
        records = work.settling.failures.hanging_steps(now, work.max_processing_time, _GRACE)
        waiting = [lane for lane in lanes if any(record in records for record in lane.records)] if records else []
        for lane in waiting:
            work.gate.hangs(lane)
            if not lane.has_substitute and self.substitutes < wanted:
                self._substitute(lane)
        return waiting

    def _expire_call(self, lane: Lane, now: float) -> None:
        lane.is_overdue = True
        lane.overdue_since = now
        work = self._work
        work.slow_calls.note(work.listener, work.max_processing_time, lane, now)
        if lane.cancels and lane.task is not None:
            lane.task.cancel()

    def _abandon(self, lane: Lane, wanted: int) -> None:
        self._substitute(lane)
        if lane.cancels:
            log.error(
                "%s ignores its cancellation while processing %s. Its key waits, and a substitute lane takes over "
                "(%d of %d)",
                *(self._work.listener, _first(lane), self.substitutes, wanted),
            )

    def _substitute(self, lane: Lane) -> None:
        self.substitutes += 1
        lane.has_substitute = True
        self._add_substitute()

    def dismiss_substitute(self, lane: Lane) -> None:
        """The call has ended after all."""
        lane.has_substitute = False
        self.substitutes -= 1

    def _log_standstill(self, stuck: int, most: int, now: float) -> None:
        if stuck < most:
            if self._remind_at < inf:
                log.warning("%s resumes: a hung call has returned", self._queue)
            self._remind_at = inf
        elif self._remind_at == inf or now >= self._remind_at:
            self._remind_at = now + _REMIND_EVERY
            log.error(
                "%s is stuck: all lanes and substitutes are blocked by %d hung calls of %s (or last steps). Nothing is "
                "processed until one returns. Make the function return within maxProcessingTime (%g s), and restart "
                "the process",
                *(self._queue, stuck, self._work.listener, self._work.max_processing_time),
            )


def _first(lane: Lane) -> object:
    return lane.records[0] if lane.records else None
