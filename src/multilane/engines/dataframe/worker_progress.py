"""The progress of a DataFrame stage in a worker process: its log lines, and the report of each task to the driver.

Thread: loop.

Lives as long as the process, which runs one task at a time. Logs a line every ten seconds in which anything happened,
and the total of each task of a batch. The tasks of a stream follow each other within seconds: only the lines are logged
there, and their total is the driver's. Owns the counts that are not yet reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypedDict

from multilane.clock import Clock
from multilane.engines.process.progress import ProcessProgress, SettlingGroups
from multilane.lanes.failure_log import FailureCollector, FailureLog
from multilane.metrics.observer import Count, Duration, Gauge, Observer, ReportBuffer, pair
from multilane.wire.records.record import Record


class TaskReport(TypedDict):
    """What a task did, for the driver; as the reports of other engines' workers."""

    counts: list[Count | Duration]
    failures: list[dict[str, Any]]


class _FailuresOfWorker:
    """Logs each failure here, and collects it for the driver."""

    def __init__(self, log: FailureLog, collector: FailureCollector) -> None:
        self._log = log
        self._collector = collector

    def note(self, consumer: str, record: Record, error: BaseException) -> None:
        self._log.note(consumer, record, error)
        self._collector.note(consumer, record, error)


class WorkerProgress:
    """Make it inside the running loop."""

    def __init__(self, observer: Observer, clock: Clock) -> None:
        """`observer`: the application's, in this process."""
        self._clock = clock
        self._report = ReportBuffer()
        self._collector = FailureCollector(clock)
        self._lines = ProcessProgress(clock, pair(observer, self._report))
        self._running: asyncio.Task[None] | None = None
        self.counts: Observer = pair(self._report, self._lines.counts)  # for lanes, beside the application's observer
        self.failures = _FailuresOfWorker(self._lines.progress.failures, self._collector)

    def begin_task(self, factories: SettlingGroups, gauges: Callable[[], Sequence[Gauge]], *, in_stream: bool) -> None:
        now = self._clock.monotonic()
        if self._running is None:
            self._lines.progress.begin(now)
            self._running = asyncio.create_task(self._lines.run(factories, gauges))
        elif not in_stream:
            self._lines.progress.log_progress(now)  # of a stream, whose tasks ran in this process
            self._lines.progress.begin(now)

    def end_task(self, factories: SettlingGroups, total: str | None) -> TaskReport:
        """`total`: what the line with the task's totals calls it; None for no line."""
        self._lines.note(factories)
        if total is not None:
            now = self._clock.monotonic()
            self._lines.progress.close(now, total)
            self._lines.progress.begin(now)  # what is in the total is in no later line
        return {"counts": self._report.take(), "failures": self._collector.take()}

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self._running = None
