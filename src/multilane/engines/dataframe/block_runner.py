"""Runs blocks of records on lanes until each record is settled.

Thread: loop; one task at a time.

The counterpart of the pump for a caller that has the records already, and wants the outcome of each. There is no
position. The caller continues when all records are settled, or passes the blocks again. Owns the processors of its
partitions. Never commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from multilane.clock import Clock
from multilane.engines.dataframe.record_verdicts import RecordVerdict, RecordVerdicts
from multilane.lanes.assignment import Start, Starts
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.types import TopicPartition
from multilane.wire.records.arrow_rows import out_of_order
from multilane.wire.records.block import Block

_MAX_WAITING: Final = 64 * 1024 * 1024  # bytes; above, no more blocks are taken
_CHECK_EVERY: Final = 0.05  # seconds between checks without a notification
_CLOSE_TIMEOUT: Final = 1.0  # seconds for idle lanes to end

Build = Callable[[Starts, RecordVerdicts], Awaitable[PartitionProcessor]]


class Settled(NamedTuple):
    """Records of one partition with their outcomes."""

    partition: TopicPartition
    offsets: npt.NDArray[np.int64]
    verdicts: Sequence[RecordVerdict]


@dataclass(slots=True)
class _PartitionRun:
    """The blocks of one partition."""

    processor: PartitionProcessor
    verdicts: RecordVerdicts
    open: list[npt.NDArray[np.int64]]  # offsets of each block that is not settled completely
    rows: int = 0
    bytes: int = 0


class BlockRunner:
    """Make it inside the running loop."""

    def __init__(self, build: Build, clock: Clock) -> None:
        self._build = build
        self._clock = clock
        self._runs: dict[TopicPartition, _PartitionRun] = {}
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failure: BaseException | None = None

    async def process(self, blocks: Iterable[Block]) -> list[Settled]:
        """Take blocks. Returns the records settled since the last call, once there is room for more blocks."""
        for block in blocks:
            await self._accept(block)
        await self._until(self._wants_more)
        return self._take_settled()

    async def some(self) -> list[Settled]:
        """The same without more blocks, for a caller that has no room for more: wait until a block is settled."""
        await self._until(self._has_settled)
        return self._take_settled()

    async def finish(self) -> list[Settled]:
        """Wait until all records are settled. Call it after the last block."""
        self._flush()
        await self._until(self._is_idle, self._flush)
        settled = self._take_settled()
        await self._drain(_CLOSE_TIMEOUT)
        return settled

    async def abort(self) -> None:
        """Abandon the records in flight; they stay unsettled."""
        await self._drain(0.0)

    # --- parts -------------------------------------------------------------------------------------------------------

    async def _accept(self, block: Block) -> None:
        partition = TopicPartition(block.topic, block.partition)
        run = self._runs.get(partition)
        if run is None:
            verdicts = RecordVerdicts()
            processor = await self._build({partition: Start(block.first_offset)}, verdicts)
            run = self._runs[partition] = _PartitionRun(processor, verdicts, [])
            processor.listen(self._notify, self._fail)
        end = run.processor.end(partition)
        if block.first_offset < end:
            raise out_of_order(str(partition), end - 1, block.first_offset)
        run.open.append(block.offsets)
        run.rows += len(block)
        run.bytes += block.own_bytes
        run.processor.accept(block)
        run.processor.feed()

    def _notify(self) -> None:
        if not self._changed.done():
            self._changed.set_result(None)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._notify()

    async def _until(self, condition: Callable[[], bool], on_check: Callable[[], object] = lambda: None) -> None:
        """Lanes notify when they run out of records, but a lane that ends does not: so check regularly too."""
        while self._failure is None and not condition():
            self._changed = asyncio.get_running_loop().create_future()
            done, _ = await asyncio.wait([self._changed], timeout=_CHECK_EVERY)
            if not done:
                on_check()
        if self._failure is not None:
            raise self._failure

    def _wants_more(self) -> bool:
        waiting = 0
        for partition, run in self._runs.items():
            waiting += run.processor.waiting_rows(partition) * run.bytes // run.rows
        return waiting < _MAX_WAITING

    def _has_settled(self) -> bool:
        runs = self._runs.items()
        return any(run.open and int(run.open[0][-1]) < run.processor.frontier(partition) for partition, run in runs)

    def _is_idle(self) -> bool:
        return all(run.processor.is_idle(partition) for partition, run in self._runs.items())

    def _flush(self) -> None:
        """Release windows that will not fill up."""
        for partition, run in self._runs.items():
            if not run.processor.has_blocks(partition):
                run.processor.flush()

    def _take_settled(self) -> list[Settled]:
        """The records of completely settled blocks: those below the frontier."""
        settled: list[Settled] = []
        for partition, run in self._runs.items():
            frontier = run.processor.frontier(partition)
            while run.open and int(run.open[0][-1]) < frontier:
                offsets = run.open.pop(0)
                settled.append(Settled(partition, offsets, run.verdicts.take(offsets.tolist())))
        return settled

    async def _drain(self, seconds: float) -> None:
        runs, self._runs = self._runs, {}
        deadline = self._clock.monotonic() + seconds
        await asyncio.gather(*(run.processor.drain(deadline) for run in runs.values()))
