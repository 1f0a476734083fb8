"""The error consumer: on a schedule, returns error records to their topics, one run at a time.

Thread: loop.

Owns the timer and the current run. Skips a scheduled time during a run. Logs a run that fails, and the next one starts
over: a run never commits a record that is not done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Protocol

from multilane.clock import Clock, SystemClock
from multilane.error_consumer.error_partition import ErrorSteps
from multilane.error_consumer.run import ErrorRun, RunReport
from multilane.errors import ClientClosed, MultilaneError
from multilane.logs import logger
from multilane.outcome.error_policy import ErrorRules

log = logger(__name__)

_LONGEST_WAIT: Final = 60.0  # then reads the wall clock again: it may have been set


class NextRun(Protocol):
    def next_after(self, now: datetime, /) -> datetime: ...


class ErrorConsumer:
    """Reads error topics as a member of `group.id`, applies the rules, and runs on the schedule."""

    def __init__(
        self,
        properties: Mapping[str, object],
        rules: ErrorRules,
        steps: ErrorSteps,
        *,
        schedule: NextRun | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._properties = dict(properties)
        self._rules = rules
        self._steps = steps
        self._schedule = schedule
        self._clock = clock or SystemClock()
        self._run: ErrorRun | None = None
        self._timer: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopped = asyncio.Event()
        self.last_report: RunReport | None = None

    @property
    def is_running(self) -> bool:
        return self._run is not None

    def start(self) -> None:
        """Start the schedule; a second call does nothing."""
        if self._schedule is not None and self._timer is None and not self._stopped.is_set():
            self._timer = asyncio.create_task(self._follow(self._schedule))

    async def run_now(self) -> RunReport | None:
        """Perform a run and return its report; None if one is under way."""
        if self._stopped.is_set():
            raise ClientClosed("this error consumer is stopped")
        if self._run is not None:
            return None
        self._idle.clear()
        try:
            self._run = ErrorRun(self._properties, self._rules, self._steps, self._clock)
            self.last_report = report = await self._run.perform()
        finally:
            self._run = None
            self._idle.set()
        log.info(
            "error consumer %s: the run has ended. Records republished: %d, handled by the error function: %d, "
            "exhausted: %d. Partitions with too recent records: %d; blocked by a record: %d",
            *(self._properties.get("group.id"), report.republished, report.handled, report.exhausted),
            *(len(report.waiting), len(report.kept)),
        )
        return report

    async def stop(self) -> None:
        """Stop the schedule, and wait until the current run has finished what it began. A second call does nothing."""
        self._stopped.set()
        if self._run is not None:
            self._run.stop()
        await self._idle.wait()
        if self._timer is not None:
            await self._timer

    # --- the schedule ------------------------------------------------------------------------------------------------

    async def _follow(self, schedule: NextRun) -> None:
        while not self._stopped.is_set():
            if not await self._wait_until(schedule.next_after(self._now())):
                return
            try:
                await self.run_now()
            except MultilaneError as error:
                text = "error consumer %s: the run failed: %s. The next one starts on schedule"
                log.error(text, self._properties.get("group.id"), error)  # noqa: TRY400
            except Exception:  # a defect must not end the schedule
                log.exception("error consumer %s: the run failed", self._properties.get("group.id"))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall(), UTC)

    async def _wait_until(self, moment: datetime) -> bool:
        """Returns False if the consumer is stopped before."""
        while (remaining := (moment - self._now()).total_seconds()) > 0:
            try:
                async with asyncio.timeout(min(remaining, _LONGEST_WAIT)):
                    await self._stopped.wait()
            except TimeoutError:
                continue
            return False
        return not self._stopped.is_set()
