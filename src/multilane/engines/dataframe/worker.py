"""The Spark worker of `App.handle`: runs the rows of a task on lanes, and returns the outcome of each.

Thread: the worker's own iterates over the rows; an event loop on another thread runs the application.

Imports the application once for each process: its event loop, pools and producers live as long as the process. A task
ends when each of its records is settled. Owns the applications of this process.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from multilane.engines.dataframe.block_runner import BlockRunner, Settled
from multilane.engines.worker_environment import in_worker_environment, load, resolve_home
from multilane.errors import ConfigError
from multilane.lanes.interpreter import loop_on_thread
from multilane.spark.packing import UNPACKED
from multilane.wire.records.arrow_rows import blocks_of

T = TypeVar("T")
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
class StagePlan:
    """What a worker needs to start; part of the Spark task."""

    factory: str  # MODULE:NAME of a function that creates the worker's application from the target
    target: str
    consumer: str
    home: str  # the directory of the application's modules and files
    sorts: bool = False  # whether the worker must sort the rows


class WorkerApp(Protocol):
    """What the factory creates."""

    async def block_runner(self, consumer: str) -> BlockRunner: ...

    async def close(self) -> None: ...


def serve(plan: StagePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function of the task."""
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return  # no rows: create nothing
    with _worker_environment(plan):
        worker = _worker(plan)
        block_runner = worker.run(worker.app.block_runner(plan.consumer))
        is_finished = False
        try:
            for batch in _in_order(first, rows) if plan.sorts else _with(first, rows):
                yield from _outcomes(worker.run(block_runner.process(list(blocks_of(batch)))))
            yield from _outcomes(worker.run(block_runner.finish()))
            is_finished = True
        finally:
            if not is_finished:
                worker.run(block_runner.abort())


def _with(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


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
        self._stack = ExitStack()
        self._loop = self._stack.enter_context(loop_on_thread("multilane-stage"))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        self.run(self.app.close())
        self._stack.close()


_workers: dict[tuple[str, str], _Worker] = {}


def _worker(plan: StagePlan) -> _Worker:
    key = plan.target, plan.home
    if key not in _workers:
        _workers[key] = _Worker(load(plan.factory), plan.target)
    return _workers[key]


def close_all() -> None:
    """Close the applications, for processes that continue without Spark."""
    while _workers:
        _workers.popitem()[1].close()


@contextmanager
def _worker_environment(plan: StagePlan) -> Iterator[None]:
    """Other functions of the session use the same process: after each task restore everything but the modules."""
    if not os.path.isdir(resolve_home(plan.home)):
        raise ConfigError(
            f"{plan.home} is not on {socket.gethostname()}: pack the application (multilane pack APP.zip), give it to "
            f"Spark (spark.archives=APP.zip#{UNPACKED}) and set home={UNPACKED!r}, or set home to its directory"
        )
    with in_worker_environment(plan.home, _task_number(), forgets=False):
        yield


def _task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())
