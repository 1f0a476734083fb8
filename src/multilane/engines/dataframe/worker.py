"""The Spark worker of `App.handle`: runs the rows of a task on lanes, and returns the outcome of each.

Thread: the worker's own iterates over the rows; an event loop on another thread runs the application.

Imports the application once for each process: its event loop, pools and producers live as long as the process. A task
ends when each of its records is settled. Owns the applications of this process.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from multilane.clock import SystemClock
from multilane.engines.dataframe.block_runner import BlockRunner, Settled
from multilane.engines.dataframe.spark_task import LoopThread, current_task, show_log
from multilane.engines.dataframe.task_reports import CompletedTask, CompletedTasks, StageWork
from multilane.engines.dataframe.worker_progress import TaskReport
from multilane.engines.worker_environment import in_worker_environment, load, resolve_home
from multilane.errors import ConfigError
from multilane.spark.packing import UNPACKED
from multilane.wire.records.arrow_rows import blocks_of

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

_CLOCK: Final = SystemClock()
_ROWS: Final = 10_000  # rows of a batch that is sorted here
_LOG_ORDER: Final = ("topic", "partition", "offset")
OUTCOMES: Final = "topic string, partition int, offset bigint, outcome string, error string"
_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("outcome", pa.string()),
        ("error", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class StageSpec:
    """What a worker needs to start; part of the Spark task."""

    factory: str  # MODULE:NAME of a function that creates the worker's application from the target
    target: str
    consumer: str
    home: str  # the directory of the application's modules and files
    sorts: bool = False  # whether the worker must sort the rows
    log_level: int = logging.WARNING  # the driver's: it applies where the worker's log is not configured
    reports: Accumulator[CompletedTasks] | None = None  # what tasks did, for the driver; None: Spark cannot carry it


class WorkerApp(Protocol):
    """What the factory creates."""

    async def begin_task(self, consumer: str, *, in_stream: bool) -> BlockRunner: ...

    async def end_task(self, total: str | None) -> TaskReport:
        """`total`: what the log line with the task's totals calls it; None for no line."""
        ...

    async def close(self) -> None: ...


def serve(spec: StageSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function of the task."""
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return  # no rows: create nothing
    task, began = current_task(), _CLOCK.monotonic()
    with _worker_environment(spec, task.number):
        worker = _worker(spec)
        show_log(spec.log_level)
        block_runner = worker.run(worker.app.begin_task(spec.consumer, in_stream=task.query is not None))
        is_finished = False
        try:
            for batch in _in_order(first, rows) if spec.sorts else chain([first], rows):
                yield from _outcomes(worker.run(block_runner.process(list(blocks_of(batch)))))
            yield from _outcomes(worker.run(block_runner.finish()))
            is_finished = True
        finally:
            if not is_finished:
                worker.run(block_runner.abort())
            news = worker.run(worker.app.end_task(task.total))
            if spec.reports is not None:
                work = StageWork.of(spec.target, task.stage, task.query)
                spec.reports.add([CompletedTask(work, _CLOCK.monotonic() - began, news)])


def _in_order(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sort the rows of the task in memory: Spark cannot sort a stream."""
    table = pa.Table.from_batches([first, *rest])
    for name in ("key", "value"):  # their total size may exceed the limit of a plain column
        index = table.schema.get_field_index(name)
        table = table.set_column(index, name, table.column(name).cast(pa.large_binary()))
    return iter(table.sort_by([(name, "ascending") for name in _LOG_ORDER]).to_batches(_ROWS))


def _outcomes(settled: Iterable[Settled]) -> Iterator[pa.RecordBatch]:
    for partition, offsets, verdicts in settled:
        count = len(offsets)
        columns = [
            pa.repeat(pa.scalar(partition.topic), count),
            pa.repeat(pa.scalar(partition.partition, pa.int32()), count),
            pa.array(offsets, pa.int64()),
            pa.array([verdict.outcome.value for verdict in verdicts], pa.string()),
            pa.array([verdict.error for verdict in verdicts], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


# --- the applications of this process --------------------------------------------------------------------------------


class _Worker:
    def __init__(self, make: Callable[[str], WorkerApp], target: str) -> None:
        self.app = make(target)
        self._loop = LoopThread("multilane-stage")
        self.run = self._loop.run

    def close(self) -> None:
        self.run(self.app.close())
        self._loop.close()


_workers: dict[tuple[str, str], _Worker] = {}


def _worker(spec: StageSpec) -> _Worker:
    key = spec.target, spec.home
    if key not in _workers:
        _workers[key] = _Worker(load(spec.factory), spec.target)
    return _workers[key]


def close_all() -> None:
    """Close the applications, for processes that continue without Spark."""
    while _workers:
        _workers.popitem()[1].close()


@contextmanager
def _worker_environment(spec: StageSpec, number: int) -> Iterator[None]:
    """Other functions of the session use the same process: after each task restore everything but the modules."""
    if not os.path.isdir(resolve_home(spec.home)):
        raise ConfigError(
            f"{spec.home} is not on {socket.gethostname()}: pack the application (multilane pack APP.zip), give it to "
            f"Spark (spark.archives=APP.zip#{UNPACKED}) and set home={UNPACKED!r}, or set home to its directory"
        )
    with in_worker_environment(spec.home, number, forgets=False):
        yield
