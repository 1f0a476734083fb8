"""The Spark worker of `lanes`: calls the function for the rows of a task, and returns them with its answers.

Thread: the worker's own iterates over the rows; an event loop on another thread runs the lanes.

The loop, and the function with all that it keeps (such as a client with open connections), live as long as the process,
so that the next task, or micro-batch, finds them. A task ends when each of its rows has its answer. Owns the functions
of this process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.accumulators import _accumulatorRegistry
from pyspark.sql.types import DataType

from multilane.clock import SystemClock
from multilane.config.app.units import format_size
from multilane.engines.dataframe.block_runner import BlockRunner, Settled
from multilane.engines.dataframe.record_verdicts import RecordVerdicts
from multilane.engines.dataframe.rows.arguments import Arguments
from multilane.engines.dataframe.rows.function import RowFunction, unpack
from multilane.engines.dataframe.rows.result_columns import ResultColumn
from multilane.engines.dataframe.rows.row_lanes import FunctionLanes, LaneSettings
from multilane.engines.dataframe.rows.row_store import RowStore
from multilane.engines.dataframe.spark_task import LoopThread, SparkTask, current_task, show_log
from multilane.engines.dataframe.task_reports import CompletedTask, CompletedTasks, StageWork
from multilane.engines.dataframe.worker_progress import TaskReport, WorkerProgress
from multilane.errors import WrongRows
from multilane.lanes.assignment import Starts
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.metrics.observer import NO_OBSERVER

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

SORT_BYTES: Final = 256 * 1024 * 1024  # rows of one task of a micro-batch that are sorted here
_MOST_FUNCTIONS: Final = 8  # kept in a process, the newest: a notebook ships a new one with each run of its cell
_ROWS: Final = 10_000  # of a batch that is sorted here
_CLOCK: Final = SystemClock()


@dataclass(frozen=True, slots=True)
class RowSpec:
    """What a worker needs; part of the Spark task. Behind the caller's columns come the key's, and those to sort by."""

    function: bytes
    name: str
    returns: DataType
    settings: LaneSettings = field(default_factory=LaneSettings)
    columns: int = 0  # the caller's
    has_key: bool = False
    sorts: bool = False  # whether the worker must sort the rows
    sort_bytes: int = SORT_BYTES
    log_level: int = logging.WARNING  # the driver's: it applies where the worker's log is not configured
    reports: Accumulator[CompletedTasks] | None = None  # what tasks did, for the driver; None: Spark cannot carry it


def serve(spec: RowSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function of the task."""
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return  # no rows: create nothing
    task, began, process = current_task(), _CLOCK.monotonic(), _process()
    show_log(spec.log_level)
    run, function = process.loop.run, process.function(spec)
    store = RowStore(
        process.lanes(spec).topic, task.number, Arguments(function.argument).values, ResultColumn(spec.returns)
    )
    block_runner = run(process.begin_task(spec, function, store, in_stream=task.query is not None))
    ordered = chain([first], rows)
    is_finished = False
    try:
        for batch in _in_order(spec, ordered) if spec.sorts else ordered:
            yield from _answers(spec, store, _fed(spec, batch, store, block_runner))
        yield from _answers(spec, store, run(block_runner.finish()))
        is_finished = True
    finally:
        if not is_finished:
            run(block_runner.abort())
        process.report(spec, task, began)


def _fed(spec: RowSpec, batch: pa.RecordBatch, store: RowStore, block_runner: BlockRunner) -> Iterator[Settled]:
    """The rows that are settled meanwhile. While too many rows wait for others, no more are taken."""
    run = _process().loop.run
    keys = batch.column(spec.columns) if spec.has_key else None
    for block in store.add(batch.select(list(range(spec.columns))), keys):
        yield from run(block_runner.process([block]))
        while store.is_full:
            yield from run(block_runner.some())


def _answers(spec: RowSpec, store: RowStore, settled: Iterable[Settled]) -> Iterator[pa.RecordBatch]:
    for partition, offsets, verdicts in settled:
        batch, wrong = store.take(int(offsets[0]), verdicts)
        _process().lanes(spec).note_wrong(partition.partition, wrong)
        yield batch


def _in_order(spec: RowSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sort the rows of the task in memory: Spark cannot sort a stream."""
    held, size = [], 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > spec.sort_bytes:
            raise WrongRows(
                f"order_by: a task of this micro-batch has more than {format_size(spec.sort_bytes)} of rows, and Spark "
                "cannot sort a stream, so they are sorted in the worker's memory. Make micro-batches smaller "
                "(maxOffsetsPerTrigger, maxFilesPerTrigger, ...) or spread them over more tasks (tasks=)"
            )
    table = pa.Table.from_batches(held)
    del held
    by: dict[str, pa.ChunkedArray] = {}
    for at, column in enumerate(table.columns[spec.columns + spec.has_key :]):
        by |= {f"valid{at}": column.is_valid(), f"order{at}": column}  # nulls first, as Spark sorts
    indices = pc.sort_indices(pa.table(by), [(name, "ascending") for name in by])
    for start in range(0, len(indices), _ROWS):
        yield from table.take(indices.slice(start, _ROWS)).combine_chunks().to_batches()


# --- the functions of this process -----------------------------------------------------------------------------------


class _Process:
    def __init__(self) -> None:
        self.loop = LoopThread("multilane-lanes")
        self._functions: dict[bytes, RowFunction] = {}
        self._lanes: dict[str, FunctionLanes] = {}  # by name: their counts go on for as long as the process
        self._progress = self.loop.run(self._made())

    async def _made(self) -> WorkerProgress:
        return WorkerProgress(NO_OBSERVER, _CLOCK)

    def function(self, spec: RowSpec) -> RowFunction:
        """As it was unpacked for the first task: with what it has kept since. One with accumulators is unpacked for
        each task, because that is how Spark learns of them."""
        accumulators = len(_accumulatorRegistry)
        found = self._functions.pop(spec.function, None) or unpack(spec.function)
        if len(_accumulatorRegistry) > accumulators:
            return found
        self._functions[spec.function] = found
        while len(self._functions) > _MOST_FUNCTIONS:
            del self._functions[next(iter(self._functions))]
        return found

    def lanes(self, spec: RowSpec) -> FunctionLanes:
        progress = self._progress
        if spec.name not in self._lanes:
            self._lanes[spec.name] = FunctionLanes(spec.name, _CLOCK, progress.counts, progress.failures)
        return self._lanes[spec.name]

    async def begin_task(
        self, spec: RowSpec, function: RowFunction, store: RowStore, *, in_stream: bool
    ) -> BlockRunner:
        lanes = self.lanes(spec)

        async def build(starts: Starts, verdicts: RecordVerdicts) -> PartitionProcessor:
            return await lanes.build(function, spec.settings, store, starts, verdicts)

        self._progress.begin_task(
            self._lanes, lambda: [g for one in self._lanes.values() for g in one.gauges()], in_stream=in_stream
        )
        return BlockRunner(build, _CLOCK)

    def report(self, spec: RowSpec, task: SparkTask, began: float) -> None:
        news = self.loop.run(self._end_task(task.total))
        if spec.reports is not None:
            work = StageWork.of(spec.name, task.stage, task.query)
            spec.reports.add([CompletedTask(work, _CLOCK.monotonic() - began, news)])

    async def _end_task(self, total: str | None) -> TaskReport:
        return self._progress.end_task(self._lanes, total)

    def close(self) -> None:
        self.loop.run(self._progress.close())
        self.loop.close()


_processes: list[_Process] = []  # this one, once it has had a task


def _process() -> _Process:
    if not _processes:
        _processes.append(_Process())
    return _processes[0]


def close_process() -> None:
    """Forget the functions, for processes that continue without Spark."""
    while _processes:
        _processes.pop().close()
