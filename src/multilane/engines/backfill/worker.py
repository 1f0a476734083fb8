"""One task of a backfill in a Spark worker: processes its partitions and reports its progress.

Thread: the worker's own runs the application; a second one receives the driver's messages.

Finds the application by import path, in its directory. The driver sends the start offsets when the task connects, so a
task that Spark restarts continues at the last reported progress. If the driver is gone, the task stops at once: another
task repeats what was not reported.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from multilane.commit.runs import SettledOffsets
from multilane.engines.backfill.messages import FromTask, ToTask
from multilane.engines.backfill.progress import (
    ProgressReport,
    epochs_from,
    epochs_to_json,
    positions_from,
    positions_to_json,
)
from multilane.engines.batches.messages import Json
from multilane.engines.channel.channel import MessageChannel
from multilane.engines.task import CLEANLY, TaskSpec, WorkerTask, ended_row, run_in_worker
from multilane.errors import (
    AuthenticationError,
    BreakerOpen,
    ChannelLost,
    ConfigError,
    DataLoss,
    LogTruncated,
)

_NAME: Final = "task"
SCHEMA: Final = "task int, ended string"
_ANSWER_SECONDS: Final = 60.0
# Errors that a retry would raise again.
_LASTING: Final = (AuthenticationError, BreakerOpen, ConfigError, DataLoss, LogTruncated)


@dataclass(frozen=True, slots=True)
class BackfillTask:
    """The work of one task."""

    consumer: str  # its name in the configuration
    topic: str
    starts: Mapping[int, SettledOffsets]  # by partition
    ends: Mapping[int, int]
    to_error_topic: bool = False  # copy exhausted records there as well
    skips_deleted: bool = False  # if records were deleted before they were read, continue at the log's beginning
    epochs: Mapping[int, int] = field(default_factory=dict)  # the newest leader epoch that was read, by partition
    topic_id: str | None = None

    def to_json(self) -> Json:
        return {
            "consumer": self.consumer,
            "topic": self.topic,
            "starts": positions_to_json(self.starts),
            "ends": {str(partition): end for partition, end in self.ends.items()},
            "to_error_topic": self.to_error_topic,
            "skips_deleted": self.skips_deleted,
            "epochs": epochs_to_json(self.epochs),
            "topic_id": self.topic_id,
        }


def task_from(message: Json) -> BackfillTask:
    ends = {int(partition): end for partition, end in message["ends"].items()}
    rest = {name: message[name] for name in ("consumer", "topic", "to_error_topic", "skips_deleted", "topic_id")}
    return BackfillTask(starts=positions_from(message["starts"]), ends=ends, epochs=epochs_from(message), **rest)


SendReport = Callable[[ProgressReport], None]


class BackfillWorker(Protocol):
    """What the factory creates from the target."""

    def run(self, task: BackfillTask, send_report: SendReport) -> ProgressReport:
        """Run until all is done, or until `stop`. Returns the last report, which is not sent yet."""
        ...

    def stop(self) -> None:
        """Stop gracefully; from any thread, at any time."""

    def news(self) -> dict[str, Any]:
        """`counts` and `failures` since the last call, and the current `gauges`, for the driver; from any thread."""
        ...

    def abort(self) -> None:
        """Stop at once; from any thread, at any time. `run` raises."""


def serve(spec: TaskSpec, batches: Iterator[Any]) -> Iterator[Any]:
    """The function of the job: returns a row for each task, with how it ended."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield ended_row(_NAME, number, run_task(spec, number))


def run_task(spec: TaskSpec, number: int) -> str:
    return run_in_worker(spec, number, _NAME, _make, _run)


def _make(task: WorkerTask) -> tuple[BackfillWorker, BackfillTask] | None:
    """None if the driver has no work."""
    task.channel.send(FromTask.HELLO, number=task.number, host=socket.gethostname(), pid=os.getpid())
    message = task.channel.receive()
    if message is None or message["kind"] != ToTask.WORK:
        return None
    return task.load_worker(lasting=True), task_from(message["errand"])


def _run(task: WorkerTask, made: tuple[BackfillWorker, BackfillTask]) -> str:
    """The task does not fail on a permanent failure: Spark would retry it."""
    worker, work = made
    closed = threading.Event()
    task.start_receiver(_receive, task.channel, worker, closed)
    try:
        last = worker.run(work, lambda report: _send_report(task, FromTask.PROGRESS, report, worker))
    except _LASTING as error:
        return task.send_failure(error, lasting=True)
    except Exception as error:
        task.send_failure(error, lasting=False)
        raise
    _send_report(task, FromTask.OVER, last, worker)
    if not closed.wait(_ANSWER_SECONDS):
        raise ChannelLost("the driver did not confirm the last report of this task")
    return CLEANLY


def _send_report(task: WorkerTask, kind: FromTask, report: ProgressReport, worker: BackfillWorker) -> None:
    task.channel.send(kind, number=task.number, report=report.to_json(), news=worker.news())


def _receive(channel: MessageChannel, worker: BackfillWorker, closed: threading.Event) -> None:
    while (message := channel.receive()) is not None:
        if message["kind"] == ToTask.CLOSED:
            closed.set()
            return
        worker.stop()
    worker.abort()
