"""The frame of a task in a Spark worker: connects to the driver, makes the worker, runs it.

Thread: the worker's own runs the task; a second one receives from the driver.

The worker is the application's side of a task. A factory makes it, which is found by import path in the application's
home directory. A worker that cannot be made is reported to the driver and does not fail the task: Spark would retry it
at once. Owns the channel to the driver, and the worker's environment until the task ends. Never knows what the
messages between both mean.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from multilane.engines.channel.channel import MessageChannel, connect
from multilane.engines.worker_environment import in_worker_environment, load
from multilane.logs import logger
from multilane.spark.reasons import in_short

log = logger(__name__)

W = TypeVar("W")

CLEANLY: Final = "cleanly"
NOT_NEEDED: Final = "not needed"
_FAILED: Final = "failed"  # the kind of the message in every protocol


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """Everything that a task needs to start; Spark ships it inside the task."""

    factory: str  # MODULE:NAME of the function that makes the worker of the target
    target: str
    home: str  # the directory of the application's modules and files
    log_level: str
    address: tuple[str, int]
    token: str = field(repr=False)


class _CannotMake(Exception):
    def __init__(self, error: BaseException, details: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.error = error
        self.details = details


class WorkerTask:
    """A task that is connected to its driver."""

    def __init__(self, spec: TaskSpec, number: int, channel: MessageChannel, stack: ExitStack) -> None:
        """`stack` is closed when the task ends."""
        self.number = number
        self.channel = channel
        self._spec = spec
        self._stack = stack

    def load_worker(self, **details: Any) -> Any:
        """Make the worker, in its environment. If that fails, the task ends here, and the message to the driver has
        these details."""
        try:
            self._stack.enter_context(in_worker_environment(self._spec.home, self.number))
            return load(self._spec.factory)(self._spec.target)
        except (Exception, SystemExit) as error:
            log.exception("cannot load the application in this worker")
            raise _CannotMake(error, details) from error

    def start_receiver(self, receive: Callable[..., object], *arguments: Any) -> None:
        threading.Thread(target=receive, args=arguments, name="multilane-driver", daemon=True).start()

    def send_failure(self, error: BaseException, **details: Any) -> str:
        """Returns how the task has ended."""
        self.channel.try_send(_FAILED, number=self.number, error=in_short(error), **details)
        return in_short(error)


def run_in_worker(
    spec: TaskSpec,
    number: int,
    name: str,
    make: Callable[[WorkerTask], W | None],
    run: Callable[[WorkerTask, W], str],
) -> str:
    """Make a worker and run it. Returns how that ended. `name` is what log lines call the task. `make` returns None if
    the driver does not need the task."""
    logging.basicConfig(level=spec.log_level, format=f"%(asctime)s {name} {number} %(levelname)s %(message)s")
    with ExitStack() as stack:
        channel = connect(spec.address, spec.token)
        stack.callback(channel.close)
        task = WorkerTask(spec, number, channel, stack)
        try:
            worker = make(task)
        except _CannotMake as failure:
            return task.send_failure(failure.error, **failure.details)
        return NOT_NEEDED if worker is None else run(task, worker)


def ended_row(name: str, number: int, ended: str) -> Any:
    """The row that tells Spark's job how a task has ended."""
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({name: pa.array([number], pa.int32()), "ended": pa.array([ended])})
