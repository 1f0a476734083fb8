"""What the tasks of DataFrame stages did, added up in the driver: its log lines, its totals, and its observer.

Thread: its own; `accumulator` passes reports on from Spark's thread.

Reports come in an accumulator, so Spark delivers those of completed tasks, once each. It drops the report of a task
that failed, was cancelled, or whose rows were not read to the end. Spark tells nobody in Python when an action ends, so
a look each second finds out whether its stage, or its query, is still active. Owns the totals. Never blocks Spark's
scheduler.
"""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.accumulators import Accumulator, AccumulatorParam

from multilane.clock import Clock, SystemClock
from multilane.lanes.progress import Progress
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

log = logger(__name__)

_LOOK_EVERY: Final = 1.0  # seconds
_LOOKS: Final = 2  # Spark's own list of active stages lags a little
_EXIT_SECONDS: Final = 5.0


class StageWork(NamedTuple):
    """The work that has one total: a query, or a stage of a batch."""

    target: str
    stage: int | None
    query: str | None  # the id of a streaming query

    @classmethod
    def of(cls, target: str, stage: int, query: str | None) -> StageWork:
        return cls(target, stage if query is None else None, query)


class CompletedTask(NamedTuple):
    """What a worker reports at the end of a task."""

    work: StageWork
    seconds: float
    news: Any  # a TaskReport


CompletedTasks = list[CompletedTask]


class _InWorker(AccumulatorParam[CompletedTasks]):
    def zero(self, value: CompletedTasks) -> CompletedTasks:
        del value
        return []

    def addInPlace(self, value1: CompletedTasks, value2: CompletedTasks) -> CompletedTasks:
        return value1 + value2


class _InDriver(_InWorker):
    """Keeps nothing. Spark's scheduler waits for it."""

    def __init__(self, completed: queue.SimpleQueue[CompletedTask | None]) -> None:
        self._completed = completed

    def addInPlace(self, value1: CompletedTasks, value2: CompletedTasks) -> CompletedTasks:
        for task in value2:
            self._completed.put(task)
        return value1

    def __reduce__(self) -> tuple[type[_InWorker], tuple[()]]:
        return _InWorker, ()


@dataclass(slots=True)
class _Total:
    progress: Progress
    tasks: int = 0
    idle_looks: int = 0

    def close(self, now: float) -> None:
        self.progress.close(now, f"total of {self.tasks:,} task{'s' * (self.tasks != 1)}")


class TaskReports:
    """For one Spark context."""

    def __init__(self, context: SparkContext, clock: Clock | None = None) -> None:
        self._context = context
        self._clock = clock or SystemClock()
        self._completed: queue.SimpleQueue[CompletedTask | None] = queue.SimpleQueue()
        self._observers: dict[str, Observer] = {}  # by target
        self._totals: dict[StageWork, _Total] = {}
        self._look_at = 0.0
        self.accumulator: Accumulator[CompletedTasks] = context.accumulator([], _InDriver(self._completed))
        self._thread = threading.Thread(target=self._run, name="multilane-stage-reports", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def observe(self, target: str, observer: Observer) -> None:
        """The observer for tasks of this application."""
        self._observers[target] = observer

    def close(self) -> None:
        """Log the totals of what is not over. Later reports are ignored."""
        self._completed.put(None)
        self._thread.join(_EXIT_SECONDS)
        atexit.unregister(self.close)

    # --- its thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        is_closed = False
        while not is_closed:
            is_closed = not self._take_reports()
            now = self._clock.monotonic()
            if is_closed or now >= self._look_at:
                self._look_at = now + _LOOK_EVERY
                self._look(now, is_closed=is_closed)

    def _take_reports(self) -> bool:
        """Until a second has passed, if there is anything to look at; False when closed."""
        try:
            task = self._completed.get(timeout=_LOOK_EVERY if self._totals else None)
            while task is not None:
                self._add(task)
                task = self._completed.get_nowait()
        except queue.Empty:
            return True
        return False

    def _add(self, task: CompletedTask) -> None:
        total = self._totals.get(task.work)
        if total is None:
            progress = Progress(self._observers.get(task.work.target, NO_OBSERVER), self._clock)
            progress.begin(self._clock.monotonic() - task.seconds)
            total = self._totals[task.work] = _Total(progress)
        total.tasks += 1
        total.idle_looks = 0
        total.progress.add(task.news)

    def _look(self, now: float, *, is_closed: bool) -> None:
        for work, total in list(self._totals.items()):
            total.idle_looks = 0 if self._is_active(work) else total.idle_looks + 1
            if is_closed or total.idle_looks >= _LOOKS:
                total.close(now)
                del self._totals[work]
            elif now >= total.progress.due:
                total.progress.log_progress(now, f"{total.tasks:,} tasks completed; ")

    def _is_active(self, work: StageWork) -> bool:
        try:
            if work.query is None:
                return work.stage in self._context.statusTracker().getActiveStageIds()
            return work.query in _active_queries(self._context)
        except Exception as error:  # noqa: BLE001 - many types of errors mean that Spark is gone
            log.debug("cannot look at Spark's stages: %s", error)
            return False


def _active_queries(context: SparkContext) -> Sequence[str]:
    """Of all sessions: what `foreachBatch` is given belongs to a session of its own. Python has no API for that."""
    jvm: Any = context._jvm  # noqa: SLF001
    shared = jvm.org.apache.spark.sql.classic.SparkSession.active().sharedState()
    return [str(key) for key in shared.activeStreamingQueries().keySet().toArray()]


_lock = threading.Lock()
_reports: TaskReports | None = None
_context: SparkContext | None = None


def reports_of(frame: DataFrame) -> TaskReports | None:
    """Those of the context of a DataFrame; None with Spark Connect, whose clients have no accumulators."""
    global _reports, _context  # a process has one context at a time
    try:
        context = frame.sparkSession.sparkContext
    except Exception as error:  # noqa: BLE001 - Spark Connect raises errors of several types
        log.debug("no accumulators: %s", error)
        return None
    with _lock:
        if _reports is None or _context is not context:
            if _reports is not None:
                _reports.close()
            _reports, _context = TaskReports(context), context
        return _reports
