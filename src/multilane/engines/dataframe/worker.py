"""What runs in a Spark worker for a stage: the rows of a task go to the lanes, and what became of each comes back.

Thread: the worker's own iterates over the rows; an event loop on a thread of its own runs the application.

The application is found by import path, once for each process: its event loop, pools and producers live as long as the
process does. A task ends when each of its records is settled. Owns the applications of this process.
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
_ROWS: Final = 10_000  # of a batch of rows that were brought in order here
_PLACE: Final = ("topic", "partition", "offset")
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
    """All that a worker is told; it travels inside the task."""

    factory: str  # MODULE:NAME of what makes the application's side, given the target
    target: str
    consumer: str
    home: str  # where the application's modules and files are
    sorts: bool = False  # rows have to be brought in order here


class Staged(Protocol):
    """What a factory makes."""

    async def block_runner(self, consumer: str) -> BlockRunner: ...

    async def close(self) -> None: ...


def serve(plan: StagePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function of the task."""
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return  # without work nothing is made
    with _at_home(plan):
        worker = _worker(plan)
        block_runner = worker.run(worker.staged.block_runner(plan.consumer))
        is_over = False
        try:
            for batch in _in_order(first, rows) if plan.sorts else _with(first, rows):
                yield from _told(worker.run(block_runner.bring(list(blocks_of(batch)))))
            yield from _told(worker.run(block_runner.finish()))
            is_over = True
        finally:
            if not is_over:
                worker.run(block_runner.give_up())


def _with(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _in_order(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of the task, which are held meanwhile: a stream cannot be sorted by Spark."""
    table = pa.Table.from_batches([first, *rest])
    for name in ("key", "value"):  # together they may be more than a plain column can hold
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, table.column(name).cast(pa.large_binary()))
    return iter(table.sort_by([(name, "ascending") for name in _PLACE]).to_batches(_ROWS))


def _told(settled: Iterable[Settled]) -> Iterator[pa.RecordBatch]:
    for partition, offsets, verdicts in settled:
        many = len(offsets)
        columns = [
            pa.repeat(pa.scalar(partition.topic), many),
            pa.repeat(pa.scalar(partition.partition, pa.int32()), many),
            pa.array(offsets, pa.int64()),
            pa.array([verdict.outcome.value for verdict in verdicts], pa.string()),
            pa.array([verdict.error for verdict in verdicts], pa.string()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


# --- the applications of this process --------------------------------------------------------------------------------


class _Worker:
    def __init__(self, make: Callable[[str], Staged], target: str) -> None:
        self.staged = make(target)
        self._stack = ExitStack()
        self._loop = self._stack.enter_context(loop_on_thread("multilane-stage"))

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    def close(self) -> None:
        self.run(self.staged.close())
        self._stack.close()


_workers: dict[tuple[str, str], _Worker] = {}


def _worker(plan: StagePlan) -> _Worker:
    key = plan.target, plan.home
    if key not in _workers:
        _workers[key] = _Worker(load(plan.factory), plan.target)
    return _workers[key]


def close_all() -> None:
    """For processes that go on without Spark."""
    while _workers:
        _workers.popitem()[1].close()


@contextmanager
def _at_home(plan: StagePlan) -> Iterator[None]:
    """Other functions of the session use the same process: between tasks it is as it was, but for the modules."""
    if not os.path.isdir(resolve_home(plan.home)):
        raise ConfigError(
            f"{plan.home} is not on {socket.gethostname()}: pack the application (multilane pack APP.zip), give it to "
            f"Spark (spark.archives=APP.zip#{UNPACKED}) and say home={UNPACKED!r}, or where else it is"
        )
    with in_worker_environment(plan.home, _task_number(), forgets=False):
        yield


def _task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())
