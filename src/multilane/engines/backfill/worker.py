"""One task of a backfill in a Spark worker: processes its partitions and reports its progress.

Thread: the worker's own runs the application; a second one receives the driver's messages.

Finds the application by import path, in its directory. The driver sends the start offsets when the task connects, so a
task that Spark restarts continues at the last reported progress. If the driver is gone, the task stops at once: another
task repeats what was not reported.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from multilane.engines.backfill.messages import FromTask, ToTask
from multilane.engines.backfill.progress import (
    Json,
    ProgressReport,
    Start,
    epochs_from,
    epochs_to_json,
    positions_from,
    positions_to_json,
)
from multilane.engines.channel.channel import MessageChannel, connect
from multilane.engines.worker_environment import in_worker_environment, load
from multilane.errors import (
    AuthenticationError,
    BreakerOpen,
    ChannelLost,
    ConfigError,
    DataLoss,
    LogTruncated,
)
from multilane.logs import logger
from multilane.spark.reasons import in_short

log = logger(__name__)

SCHEMA: Final = "task int, ended string"
_ANSWER_SECONDS: Final = 60.0
# Errors that a retry would raise again.
_LASTING: Final = (AuthenticationError, BreakerOpen, ConfigError, DataLoss, LogTruncated)


@dataclass(frozen=True, slots=True)
class BackfillTask:
    """The work of one task."""

    consumer: str  # its name in the configuration
    topic: str
    starts: Mapping[int, Start]  # by partition
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
        """`counts` and `failures` since the last call, for the driver's log; from any thread."""
        ...

    def abort(self) -> None:
        """Stop at once; from any thread, at any time. `run` raises."""


@dataclass(frozen=True, slots=True)
class BackfillTaskPlan:
    """What a worker needs to start; part of the Spark task."""

    factory: str  # MODULE:NAME of a function that creates the worker from the target
    target: str
    home: str  # the directory of the application's modules and files
    log_level: str
    address: tuple[str, int]
    token: str = field(repr=False)


def serve(plan: BackfillTaskPlan, batches: Iterator[Any]) -> Iterator[Any]:
    """The function of the job: returns a row for each task, with how it ended."""
    import pyarrow as pa

    for batch in batches:
        for number in batch.column(0).to_pylist():
            ended = run_task(plan, number)
            yield pa.RecordBatch.from_pydict({"task": pa.array([number], pa.int32()), "ended": pa.array([ended])})


def run_task(plan: BackfillTaskPlan, number: int) -> str:
    logging.basicConfig(level=plan.log_level, format=f"%(asctime)s task {number} %(levelname)s %(message)s")
    with ExitStack() as stack:
        line = connect(plan.address, plan.token)
        stack.callback(line.close)
        line.send(FromTask.HELLO, number=number, host=socket.gethostname(), pid=os.getpid())
        said = line.receive()
        if said is None or said["kind"] != ToTask.WORK:
            return "not needed"
        try:
            stack.enter_context(in_worker_environment(plan.home, number))
            worker: BackfillWorker = load(plan.factory)(plan.target)
        except (Exception, SystemExit) as error:
            log.exception("cannot create the application")
            return _tell_failure(line, number, error, is_lasting=True)
        return _work(worker, task_from(said["errand"]), number, line)


def _work(worker: BackfillWorker, task: BackfillTask, number: int, line: MessageChannel) -> str:
    closed = threading.Event()
    threading.Thread(target=_receive, args=(line, worker, closed), name="multilane-driver", daemon=True).start()
    try:
        last = worker.run(
            task,
            lambda report: line.send(FromTask.PROGRESS, number=number, report=report.to_json(), news=worker.news()),
        )
    except _LASTING as error:
        return _tell_failure(line, number, error, is_lasting=True)
    except Exception as error:
        _tell_failure(line, number, error, is_lasting=False)
        raise
    line.send(FromTask.OVER, number=number, report=last.to_json(), news=worker.news())
    if not closed.wait(_ANSWER_SECONDS):
        raise ChannelLost("the driver did not confirm the last report of this task")
    return "in order"


def _receive(line: MessageChannel, worker: BackfillWorker, closed: threading.Event) -> None:
    while (said := line.receive()) is not None:
        if said["kind"] == ToTask.CLOSED:
            closed.set()
            return
        worker.stop()
    worker.abort()


def _tell_failure(line: MessageChannel, number: int, error: BaseException, *, is_lasting: bool) -> str:
    """Report a failure. The task does not fail on a permanent one: Spark would retry it."""
    line.try_send(FromTask.FAILED, number=number, error=in_short(error), lasting=is_lasting)
    return in_short(error)
