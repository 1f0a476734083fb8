"""Runs a backfill: assigns partitions to tasks, records their progress, and shuts them down gracefully.

Thread: the caller of `run`, which owns all state; channels, the job and `stop` only put events on its queue.

Runs one job with a task for each share of the partitions. A task connects over a channel and receives its start
offsets. It reports every second, and the driver saves the progress every second. Spark restarts a task that died: the
new one starts at the saved progress, and the channel of the old one is closed, so that it stops if it is still alive. A
task that reports a permanent error ends the run. Never reads or writes a record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from multilane.clock import Clock, SystemClock
from multilane.engines.backfill.gauges import backfill_gauges
from multilane.engines.backfill.messages import FromTask, ToTask
from multilane.engines.backfill.progress import BackfillProgress, report_from
from multilane.engines.backfill.states import AT_WORK, OVER, TRANSITIONS, BackfillState
from multilane.engines.backfill.worker import BackfillTask
from multilane.engines.channel.channel import ChannelMessage, MessageChannel
from multilane.engines.channel.inbox import DriverInbox
from multilane.engines.moves import moved
from multilane.engines.task import TaskSpec
from multilane.errors import MemberFailed, MultilaneError, SparkStartError
from multilane.lanes.progress import SETTLED, Progress
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.outcome.in_place import ExhaustedRecord
from multilane.spark.executor_news import unwatch_executors, with_cause
from multilane.spark.first_slot import START_SECONDS, no_slot
from multilane.spark.reasons import reason

log = logger(__name__)

_WRITE_EVERY: Final = 1.0
_CUT_SECONDS: Final = 30.0
_RATE_OVER: Final = 5  # writes


class Job(Protocol):
    """Runs the tasks: Spark."""

    def start(self, spec: TaskSpec, tasks: int, on_end: Callable[[Exception | None], object]) -> None: ...

    def cancel(self) -> None: ...


class ProgressStore(Protocol):
    """Saves the progress."""

    def save(self, progress: BackfillProgress) -> None: ...

    def list_failed(self, progress: BackfillProgress, failed: Sequence[ExhaustedRecord]) -> None: ...


@dataclass(frozen=True, slots=True)
class BackfillRunSpec:
    """How to run a backfill."""

    tasks: int
    factory: str
    target: str
    home: str
    to_error_topic: bool = False
    skips_deleted: bool = False
    bind: str = "127.0.0.1"
    host: str = "127.0.0.1"  # as executors reach this process
    log_level: str = "WARNING"
    drain_seconds: float = 90.0  # from a stop until the job is cancelled
    start_seconds: float = START_SECONDS  # until the first task must have begun


@dataclass(frozen=True, slots=True)
class BackfillStatus:
    """The progress of a run, for display."""

    records: int  # settled in this run, including failed ones
    failed: int  # in all runs of this pass
    remaining: int  # offsets: at least the number of records
    seconds: float  # of this run, since its first task began
    rate: float  # records a second over the last seconds


class BackfillDriver:
    """For one run. `stop` may be called before it begins."""

    _spec: BackfillRunSpec
    _job: Job
    _shares: list[list[int]]
    _start_by: float

    def __init__(
        self,
        progress: BackfillProgress,
        files: ProgressStore,
        on_status: Callable[[BackfillStatus], object],
        clock: Clock | None = None,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        self._progress = progress
        self._files = files
        self._on_status = on_status
        self._clock = clock or SystemClock()
        self._inbox = DriverInbox("task", self._clock)
        self._observer = observer
        self.progress = Progress(observer, self._clock)
        self._failure: MultilaneError | None = None
        self._last_error = ""
        self._job_error: Exception | None = None
        self._state = BackfillState.STARTING
        self._is_changed = False  # the progress, since it was written
        self._deadline: float | None = None  # of the drain, then of the cancelled job
        self._records_before, self._seconds_before = progress.records, progress.seconds
        self._noted = 0  # records that are in the logged progress
        self._began: float | None = None  # when the first task began
        self._ended: float | None = None
        self._write_at = self._clock.monotonic() + _WRITE_EVERY
        self._samples: deque[tuple[float, int]] = deque(maxlen=_RATE_OVER)  # time, and records by then

    @property
    def unready(self) -> list[str]:
        """Why the run is not ready; empty while its tasks have work. From any thread."""
        state = self._state
        if state is BackfillState.RUNNING:
            return [] if self._inbox else ["no task is connected: Spark starts another, up to four times for each"]
        return ["no task has begun" if state is BackfillState.STARTING else f"the run is {state.value}"]

    # --- life --------------------------------------------------------------------------------------------------------

    def run(self, spec: BackfillRunSpec, job: Job) -> None:
        """Run until everything is done, until every task has ended after `stop`, or until a permanent failure."""
        self._spec, self._job, self._shares = spec, job, self._progress.shares(spec.tasks)
        self._start_by = self._clock.monotonic() + spec.start_seconds
        self.progress.begin(self._clock.monotonic())
        address = self._inbox.open(spec.bind, spec.host, len(self._shares), self)
        try:
            task_spec = TaskSpec(spec.factory, spec.target, spec.home, spec.log_level, address, token=self._inbox.token)
            self._job.start(task_spec, len(self._shares), lambda error: self._inbox.put(partial(self._on_ended, error)))
            while self._state not in OVER:
                self._inbox.handle_next(
                    self._write_at if self._deadline is None else min(self._write_at, self._deadline)
                )
                self._check_timers()
            self._inbox.drain()
        finally:
            self._ended = self._clock.monotonic()
            self._is_changed = self._is_changed or self._began is not None  # its duration
            self._inbox.close()
            self._write()
            self.progress.note_gauges(backfill_gauges(self._progress, 0))
            self.progress.close(self._clock.monotonic())
        self._judge()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """From any thread, also from a signal handler."""
        self._inbox.put(self._drain)

    @property
    def state(self) -> BackfillState:
        return self._state

    def _move(self, state: BackfillState) -> None:
        self._state = moved(TRANSITIONS, self._state, state)

    @property
    def status(self) -> BackfillStatus:
        now, records = self._clock.monotonic(), self._progress.records - self._records_before
        since, earlier = self._samples[0] if self._samples else (now, records)
        rate = (records - earlier) / (now - since) if now > since else 0.0
        return BackfillStatus(records, len(self._progress.failed), self._progress.remaining, self._seconds, rate)

    @property
    def _seconds(self) -> float:
        """The duration of this run."""
        return 0.0 if self._began is None else (self._ended or self._clock.monotonic()) - self._began

    def _check_timers(self) -> None:
        now = self._clock.monotonic()
        if self._deadline is not None and now >= self._deadline:
            self._cancel_job(now)
        if self._state is BackfillState.STARTING and now >= self._start_by:
            self._fail(SparkStartError(with_cause(no_slot(self._spec.start_seconds))))
        if now >= self.progress.due:
            self.progress.log_progress(now)
        if now >= self._write_at:
            self._write_at = now + _WRITE_EVERY
            self._write()
            self.progress.note_gauges(backfill_gauges(self._progress, len(self._inbox)))
            if self._began is not None:
                self._on_status(self.status)
                self._samples.append((now, self._progress.records - self._records_before))

    def _note_settled(self) -> None:
        """The saved progress has the count: tasks do not report it with their other counts."""
        records = self._progress.records - self._records_before
        more, self._noted = records - self._noted, records
        if more > 0:
            self.progress.add({"counts": [(SETTLED, {"consumer": self._progress.plan.consumer}, more)]})

    def _cancel_job(self, now: float) -> None:
        if self._state is BackfillState.CANCELLING:
            raise SparkStartError("the cancelled job does not stop: is Spark still running?")
        self._move(BackfillState.CANCELLING)
        self._deadline = now + _CUT_SECONDS
        late = ", ".join(map(str, self._inbox))
        if late:
            text = f"tasks {late} did not end within {self._spec.drain_seconds:g} s and were cancelled"
            self._failure = self._failure or MemberFailed(f"{text}: their records in flight will be reprocessed")
        self._job.cancel()

    def _write(self) -> None:
        if self._is_changed:
            self._progress.seconds = self._seconds_before + self._seconds
            self._files.save(self._progress)
            self._is_changed = False

    # --- the end -----------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        if self._state is BackfillState.ENDED:
            self._move(BackfillState.STOPPED)
        elif self._state in AT_WORK:
            self._move(BackfillState.DRAINING)
            self._deadline = self._clock.monotonic() + self._spec.drain_seconds
            for number in self._inbox:
                self._inbox.send(number, ToTask.END)
            self._cancel_when_alone()

    def _cancel_when_alone(self) -> None:
        """If no task is connected, cancel the job: tasks that wait for a slot are no longer needed."""
        if self._state is BackfillState.DRAINING and not self._inbox:
            self._cancel_job(self._clock.monotonic())

    def _fail(self, failure: MultilaneError) -> None:
        self._failure = self._failure or failure
        self._drain()

    def _on_ended(self, error: Exception | None) -> None:
        self._move(BackfillState.ENDED if self._state in AT_WORK else BackfillState.STOPPED)
        self._deadline = None
        self._job_error = error

    def _judge(self) -> None:
        """Decide whether the run failed, after the job has ended and the queue is empty."""
        if self._state is BackfillState.STOPPED:
            return
        if self._job_error is not None:
            why = self._last_error or reason(self._job_error)
            self._failure = MemberFailed(f"{why}. The progress is saved: run the command again to continue")
        elif not self._progress.is_through:
            rest = f"{self._progress.remaining} offsets of partitions {self._progress.open_partitions} remain"
            self._failure = MemberFailed(f"all tasks have ended, but {rest}: run the command again to continue")

    # --- messages of tasks -------------------------------------------------------------------------------------------

    def on_message(self, number: int, channel: MessageChannel, message: ChannelMessage) -> None:
        if message["kind"] == FromTask.HELLO:
            self._on_hello(number, channel, message)
            return
        if not self._inbox.is_connected(number, channel):
            return
        if message["kind"] == FromTask.FAILED:
            self._on_failed(number, str(message.get("error")), is_lasting=bool(message.get("lasting")))
            return
        news = message.get("news") or {}
        self.progress.add(news, number)
        report = report_from(message["report"])
        self._files.list_failed(self._progress, self._progress.note(report))
        self._is_changed = True
        self._note_settled()
        if message["kind"] == FromTask.OVER:
            self._write()
            self._inbox.send(number, ToTask.CLOSED)

    def _on_hello(self, number: int, channel: MessageChannel, message: ChannelMessage) -> None:
        self._inbox.connect(number, channel)
        self.progress.forget(number)  # an earlier attempt, which may have died unnoticed
        log.info("task %d begins on %s, process %s", number, message.get("host"), message.get("pid"))
        if self._state not in AT_WORK:
            self._inbox.send(number, ToTask.END)
            return
        if self._state is BackfillState.STARTING:
            self._move(BackfillState.RUNNING)
            self._began = self._clock.monotonic()
            unwatch_executors()
            self._samples.append((self._began, 0))
        progress = self._progress
        mine = [partition for partition in self._shares[number] if progress.remaining_of(partition)]
        task = BackfillTask(
            progress.plan.consumer,
            progress.plan.topic,
            {partition: progress.positions[partition] for partition in mine},
            {partition: progress.plan.offset_ranges[partition][1] for partition in mine},
            self._spec.to_error_topic,
            self._spec.skips_deleted,
            {partition: progress.epochs[partition] for partition in mine if partition in progress.epochs},
            progress.plan.topic_id,
        )
        self._inbox.send(number, ToTask.WORK, errand=task.to_json())

    def _on_failed(self, number: int, error: str, *, is_lasting: bool) -> None:
        self._last_error = f"task {number} failed: {error}"
        if is_lasting:
            self._fail(MemberFailed(self._last_error))
        else:
            log.error("%s; Spark retries it", self._last_error)

    def on_disconnect(self, number: int) -> None:
        log.debug("task %d has disconnected", number)
        self.progress.forget(number)
        self._cancel_when_alone()
