"""What runs in a Spark worker: one task of a backfill, which works off its partitions and tells how far it is.

Thread: the worker's own runs the application; a second one listens to the driver.

The application is found by import path, in the directory where it lives. Where to begin is told by the driver when the
task says hello, so a task that Spark has started again goes on where the one before was known to be. When the driver is
not there any more the work is given up at once: what is done and not told will be done again by somebody else.
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
    places_from,
    places_to_json,
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
# What need not be tried again: it would be the same.
_LASTING: Final = (AuthenticationError, BreakerOpen, ConfigError, DataLoss, LogTruncated)


@dataclass(frozen=True, slots=True)
class BackfillTask:
    """What one task has to do."""

    consumer: str  # its name in the configuration
    topic: str
    starts: Mapping[int, Start]  # by partition
    ends: Mapping[int, int]
    to_error_topic: bool = False  # what is given up is copied there as well
    skips_deleted: bool = False  # where records are gone before they were read, the log's beginning will do
    epochs: Mapping[int, int] = field(default_factory=dict)  # the newest leader epoch that was read, by partition
    topic_id: str | None = None

    def to_json(self) -> Json:
        return {
            "consumer": self.consumer,
            "topic": self.topic,
            "starts": places_to_json(self.starts),
            "ends": {str(partition): end for partition, end in self.ends.items()},
            "to_error_topic": self.to_error_topic,
            "skips_deleted": self.skips_deleted,
            "epochs": epochs_to_json(self.epochs),
            "topic_id": self.topic_id,
        }


def task_from(told: Json) -> BackfillTask:
    ends = {int(partition): end for partition, end in told["ends"].items()}
    rest = {name: told[name] for name in ("consumer", "topic", "to_error_topic", "skips_deleted", "topic_id")}
    return BackfillTask(starts=places_from(told["starts"]), ends=ends, epochs=epochs_from(told), **rest)


Tell = Callable[[ProgressReport], None]


class BackfillWorker(Protocol):
    """What a factory makes of the target."""

    def run(self, errand: BackfillTask, tell: Tell) -> ProgressReport:
        """Until all is done, or `stop`; gives what was not told yet."""
        ...

    def stop(self) -> None:
        """In order; from any thread, at any time."""

    def news(self) -> dict[str, Any]:
        """`counts` and `failures` since the last time, for the driver's log; from any thread."""
        ...

    def give_up(self) -> None:
        """At once; from any thread, at any time. `run` raises."""


@dataclass(frozen=True, slots=True)
class BackfillTaskPlan:
    """All that a worker is told beforehand; it travels inside the task."""

    factory: str  # MODULE:NAME of what makes the worker, given the target
    target: str
    home: str  # where the application's modules and files are
    log_level: str
    address: tuple[str, int]
    token: str = field(repr=False)


def serve(plan: BackfillTaskPlan, batches: Iterator[Any]) -> Iterator[Any]:
    """The function of the job: a row for each task that has ended, which says how."""
    import pyarrow as pa

    for batch in batches:
        for number in batch.column(0).to_pylist():
            how = attend(plan, number)
            yield pa.RecordBatch.from_pydict({"task": pa.array([number], pa.int32()), "ended": pa.array([how])})


def attend(plan: BackfillTaskPlan, number: int) -> str:
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
            log.exception("the application cannot be made here")
            return _tell_failure(line, number, error, is_lasting=True)
        return _work(worker, task_from(said["errand"]), number, line)


def _work(worker: BackfillWorker, errand: BackfillTask, number: int, line: MessageChannel) -> str:
    closed = threading.Event()
    threading.Thread(target=_hear, args=(line, worker, closed), name="multilane-driver", daemon=True).start()
    try:
        last = worker.run(
            errand,
            lambda report: line.send(FromTask.PROGRESS, number=number, report=report.to_json(), news=worker.news()),
        )
    except _LASTING as error:
        return _tell_failure(line, number, error, is_lasting=True)
    except Exception as error:
        _tell_failure(line, number, error, is_lasting=False)
        raise
    line.send(FromTask.OVER, number=number, report=last.to_json(), news=worker.news())
    if not closed.wait(_ANSWER_SECONDS):
        raise ChannelLost("the driver did not say that it knows how far this task came")
    return "in order"


def _hear(line: MessageChannel, worker: BackfillWorker, closed: threading.Event) -> None:
    while (said := line.receive()) is not None:
        if said["kind"] == ToTask.CLOSED:
            closed.set()
            return
        worker.stop()
    worker.give_up()


def _tell_failure(line: MessageChannel, number: int, error: BaseException, *, is_lasting: bool) -> str:
    """What lasts is no failure of the task: Spark would try it again."""
    line.try_send(FromTask.FAILED, number=number, error=in_short(error), lasting=is_lasting)
    return in_short(error)
