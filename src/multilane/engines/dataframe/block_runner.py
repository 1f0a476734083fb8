"""Blocks that somebody brings, worked off by teams until each record of them is settled.

Thread: loop; one task at a time.

What the pump is for a member of a group this is for somebody who has the records already, and wants to know what
became of each. There is no position and nothing is committed: whoever brought the blocks goes on when all is settled,
or brings them again. Owns the teams of its partitions.
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

_ENOUGH: Final = 64 * 1024 * 1024  # bytes that wait: then no more is wanted for now
_LOOK: Final = 0.05  # seconds between looks, where nobody rings
_PARTING: Final = 1.0  # seconds for lanes that have nothing to do any more

Build = Callable[[Starts, RecordVerdicts], Awaitable[PartitionProcessor]]


class Settled(NamedTuple):
    """Records of one partition, and what became of each."""

    partition: TopicPartition
    offsets: npt.NDArray[np.int64]
    verdicts: Sequence[RecordVerdict]


@dataclass(slots=True)
class _Load:
    """What was brought of one partition."""

    processor: PartitionProcessor
    verdicts: RecordVerdicts
    open: list[npt.NDArray[np.int64]]  # of each block of which not all is settled
    rows: int = 0
    bytes: int = 0


class BlockRunner:
    """Make it inside the running loop."""

    def __init__(self, build: Build, clock: Clock) -> None:
        self._build = build
        self._clock = clock
        self._loads: dict[TopicPartition, _Load] = {}
        self._news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failure: BaseException | None = None

    async def bring(self, blocks: Iterable[Block]) -> list[Settled]:
        """Returns when more is wanted, with what has been settled since the last time."""
        for block in blocks:
            await self._accept(block)
        await self._until(self._wants_more)
        return self._take_settled()

    async def finish(self) -> list[Settled]:
        """No more will come: returns when all is settled."""
        self._flush()
        await self._until(self._is_idle, self._flush)
        settled = self._take_settled()
        await self._drain(_PARTING)
        return settled

    async def give_up(self) -> None:
        """What is in work is not waited for, and stays unsettled."""
        await self._drain(0.0)

    # --- how ---------------------------------------------------------------------------------------------------------

    async def _accept(self, block: Block) -> None:
        partition = TopicPartition(block.topic, block.partition)
        load = self._loads.get(partition)
        if load is None:
            verdicts = RecordVerdicts()
            processor = await self._build({partition: Start(block.first_offset)}, verdicts)
            load = self._loads[partition] = _Load(processor, verdicts, [])
            processor.listen(self._ring, self._fail)
        end = load.processor.queue.intakes[partition].end
        if block.first_offset < end:
            raise out_of_order(str(partition), end - 1, block.first_offset)
        load.open.append(block.offsets)
        load.rows += len(block)
        load.bytes += block.own_bytes
        load.processor.accept(block)
        load.processor.feed()

    def _ring(self, processor: PartitionProcessor | None = None) -> None:
        if not self._news.done():
            self._news.set_result(None)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._ring()

    async def _until(self, condition: Callable[[], bool], on_look: Callable[[], object] = lambda: None) -> None:
        """Lanes ring when they run out of work. Not all of them do: a lane that ends does not."""
        while self._failure is None and not condition():
            self._news = asyncio.get_running_loop().create_future()
            done, _ = await asyncio.wait([self._news], timeout=_LOOK)
            if not done:
                on_look()
        if self._failure is not None:
            raise self._failure

    def _wants_more(self) -> bool:
        waiting = 0
        for partition, load in self._loads.items():
            waiting += load.processor.queue.intakes[partition].waiting_rows * load.bytes // load.rows
        return waiting < _ENOUGH

    def _is_idle(self) -> bool:
        return all(load.processor.is_idle(partition) for partition, load in self._loads.items())

    def _flush(self) -> None:
        """Windows that will not be full go as they are."""
        for partition, load in self._loads.items():
            if not load.processor.queue.intakes[partition].has_blocks:
                load.processor.flush()

    def _take_settled(self) -> list[Settled]:
        """Blocks of which all is settled: those below the frontier."""
        settled: list[Settled] = []
        for partition, load in self._loads.items():
            frontier = load.processor.queue.intakes[partition].ledger.frontier
            while load.open and int(load.open[0][-1]) < frontier:
                offsets = load.open.pop(0)
                settled.append(Settled(partition, offsets, load.verdicts.take(offsets.tolist())))
        return settled

    async def _drain(self, seconds: float) -> None:
        loads, self._loads = self._loads, {}
        deadline = self._clock.monotonic() + seconds
        await asyncio.gather(*(load.processor.drain(deadline) for load in loads.values()))
