"""Calls that exceed maxProcessingTime: cancelled if possible, otherwise abandoned and replaced by a substitute lane.

Thread: loop.

A coroutine is cancelled; if it ignores that, it is abandoned like a `def` function, which cannot be cancelled. The key
of an abandoned call stays blocked until the call ends, and a substitute lane handles the other keys. Bounded by
`SlowCalls`, and by the records that a partition may have open. At either bound the partition stands still, and the log
says so until a call ends. Lanes that wait for a last step that hangs are replaced like those of abandoned calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import Final

from multilane.clock import Clock
from multilane.lanes.hung_calls import described
from multilane.lanes.lane import Lane
from multilane.lanes.partition_queue import PartitionQueue
from multilane.lanes.work import Work
from multilane.logs import logger

log = logger(__name__)

_GRACE: Final = 1.0  # seconds for a cancelled coroutine to end
_REMIND_EVERY: Final = 30.0


class Overdue:
    def __init__(
        self,
        queue: PartitionQueue,
        work: Work,
        clock: Clock,
        has_ready: Callable[[], bool],
        add_substitute: Callable[[], object],
    ) -> None:
        """`has_ready`: whether a lane could take a record now. `add_substitute` starts a substitute lane."""
        self._queue = queue
        self._work = work
        self._clock = clock
        self._has_ready = has_ready
        self._add_substitute = add_substitute
        self._slow_calls = work.slow_calls
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
            self._substitute(lane, wanted)
        in_last_steps = self._in_last_steps(lanes, wanted, now)
        if not self._log_standstill([*stuck, *in_last_steps], lanes, wanted, now) and stuck:
            self._log_hung(stuck, now)

    def _in_last_steps(self, lanes: Collection[Lane], wanted: int, now: float) -> list[Lane]:
        """Lanes whose call has failed, and the last step for its record does not end."""
        work = self._work
        records = work.settling.failures.hanging_steps(now, work.max_processing_time, _GRACE)
        waiting = [lane for lane in lanes if any(record in records for record in lane.records)] if records else []
        for lane in waiting:
            work.gate.hangs(lane)
            self._substitute(lane, wanted)
        return waiting

    def _expire_call(self, lane: Lane, now: float) -> None:
        lane.is_overdue = True
        lane.overdue_since = now
        work = self._work
        self._slow_calls.note(work.listener, work.max_processing_time, lane, now)
        if lane.cancels and lane.task is not None:
            lane.task.cancel()

    # --- substitutes -------------------------------------------------------------------------------------------------

    def _substitute(self, lane: Lane, wanted: int) -> None:
        if lane.has_substitute or not self._slow_calls.may_substitute(self.substitutes, wanted):
            return
        self._count(1)
        lane.has_substitute = True
        self._add_substitute()

    def dismiss_substitute(self, lane: Lane) -> None:
        """The call has ended after all."""
        lane.has_substitute = False
        if self.substitutes:  # not after the end
            self._count(-1)

    def end(self) -> None:
        """The lanes end."""
        self._count(-self.substitutes)

    def _count(self, more: int) -> None:
        self.substitutes += more
        self._slow_calls.substitutes += more

    # --- the log -----------------------------------------------------------------------------------------------------

    def _log_hung(self, stuck: Sequence[Lane], now: float) -> None:
        if not self._slow_calls.must_log_hung(now):
            return
        work = self._work
        log.error(
            "%s: %d calls of %s have exceeded maxProcessingTime (%g s) and do not end: %s. Their keys wait; substitute "
            "lanes handle the other keys (%d of at most %d for the consumer). Make the function return in time, for "
            "example by timeouts of the clients that it uses",
            *(self._queue, len(stuck), work.listener, work.max_processing_time),
            *(described(stuck, work.listener.threads), self._slow_calls.substitutes, self._slow_calls.most_substitutes),
        )

    def _log_standstill(self, stuck: Sequence[Lane], lanes: Collection[Lane], wanted: int, now: float) -> bool:
        why = self._why_it_stands(stuck, lanes, wanted)
        if not why:
            if self._remind_at < inf:
                log.warning("%s resumes: a hung call has returned", self._queue)
            self._remind_at = inf
        elif self._remind_at == inf or now >= self._remind_at:
            self._remind_at = now + _REMIND_EVERY
            work = self._work
            log.error(
                "%s is stuck: %d calls of %s (or last steps) hang, and %s. They hang with %s. Nothing is processed "
                "until one returns. Make the function return within maxProcessingTime (%g s), and restart the process",
                *(self._queue, len(stuck), work.listener, why, described(stuck, work.listener.threads)),
                work.max_processing_time,
            )
        return bool(why)

    def _why_it_stands(self, stuck: Sequence[Lane], lanes: Collection[Lane], wanted: int) -> str:
        if not stuck:
            return ""
        if len(stuck) >= wanted + self.substitutes:
            return f"with {self.substitutes} substitute lanes the limit of the consumer is reached"
        hung = set(stuck)
        is_idle = not self._has_ready() and not any(lane.is_calling and lane not in hung for lane in lanes)
        if is_idle and any(intake.has_blocks and intake.is_full for intake in self._queue.intakes.values()):
            return (
                "they and the records that wait behind them are as many as a partition may have open "
                "(virtualPartitionCount x virtualPartitionChanCount, maxInFlightBytes)"
            )
        return ""
