"""Decodes fetched frames on threads of its own, while the network thread receives the next.

Thread: decoder (a small pool, started on first use); the network thread itself for small, plain frames.

Each partition of a frame is decoded once, for every consumer that wanted it: a block is immutable, and each gets it in
its own slot of its own buffer. What cannot be decoded is told to the network thread, which owns the cursors. The
kernels are loaded here too: the first job of a pool.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from multilane.client.events import ApplicationEvent, BatchReadable, BatchUnreadable
from multilane.errors import RecordBatchError
from multilane.wire.records.decode import DecodeOptions, decode
from multilane.wire.records.layout import CODEC_MASK, RowWord

if TYPE_CHECKING:
    import numpy as np

    from multilane.client.fetch.buffer import FetchBuffer, Slot
    from multilane.wire.fetch import FetchedPartition
    from multilane.wire.records.batches import BatchTable
    from multilane.wire.records.block import Block

_MOST_THREADS: Final = 2
_SMALL_FRAME: Final = 16_384  # bytes

Job = Callable[[], None]


class DecoderPool:
    """Runs jobs in the order they come, on as many threads as there are cores to spare (two at most)."""

    def __init__(self, name: str, on_crash: Callable[[BaseException], None]) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._name = name
        self._on_crash = on_crash
        self._wanted = max(1, min(_MOST_THREADS, os.cpu_count() or 1))

    def submit(self, job: Job) -> None:
        if len(self._threads) < self._wanted:
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(job)

    def run(self, job: Job) -> None:
        """On the thread that calls: for what takes less time than to hand it over."""
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - whatever it is, nobody may wait for this frame in silence
            with contextlib.suppress(Exception):
                self._on_crash(error)

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)

    def join(self, timeout: float) -> None:
        for thread in self._threads:
            thread.join(timeout)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.run(job)
            del job  # not to keep a frame alive while there is nothing to do


@dataclass(frozen=True, slots=True)
class Taker:
    """One consumer's place for a block."""

    slot: Slot
    buffer: FetchBuffer
    tell: Callable[[ApplicationEvent], None]
    again: bool  # the first batch could not be read last time


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """One partition's records in a frame, ready to be decoded into the slots of all who wanted them."""

    takers: tuple[Taker, ...]
    table: BatchTable
    fetched: FetchedPartition
    broker: str
    copy_out: bool = False  # somebody would keep a large frame alive for a small share of it


@dataclass(frozen=True, slots=True)
class FrameJob:
    """All partitions of one frame that carry records."""

    frame: np.ndarray
    tasks: list[DecodeTask]
    options: DecodeOptions

    @property
    def is_quick(self) -> bool:
        """Whether it is decoded sooner than handed over, as what trickles is. What is compressed may have any size."""
        return self.frame.nbytes <= _SMALL_FRAME and not any(_is_compressed(task.table) for task in self.tasks)

    def __call__(self) -> None:
        for task in self.tasks:
            if not all(taker.slot.void for taker in task.takers):  # sought away or revoked in the meantime
                self._decode(task)

    def _decode(self, task: DecodeTask) -> None:
        slot, fetched = task.takers[0].slot, task.fetched  # all stand at the same place
        try:
            block = decode(
                self.frame,
                task.table,
                self.options,
                topic=slot.partition.topic,
                partition=slot.partition.partition,
                fetch_offset=slot.offset,
                aborted=fetched.aborted,
            )
        except RecordBatchError as error:
            for taker in task.takers:
                _report(taker, task.broker, error, taker.buffer.void(taker.slot))
            return
        if task.copy_out and any(buffer is self.frame for buffer in block.columns.buffers):
            block = block.compact()
        block = block.with_watermarks(fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset)
        for taker in task.takers:
            _hand_over(taker, task.broker, block)


def _is_compressed(table: BatchTable) -> bool:
    return bool((table.rows[:, RowWord.ATTRIBUTES] & CODEC_MASK).any())


def _hand_over(taker: Taker, broker: str, block: Block) -> None:
    run = taker.buffer.fill(taker.slot, block)
    if block.error is not None:
        _report(taker, broker, block.error, run)
    elif taker.again:
        taker.tell(BatchReadable(taker.slot.partition, taker.slot.generation))


def _report(taker: Taker, broker: str, error: RecordBatchError, run: int | None) -> None:
    if run is None:  # sought away, or voided with one before it: it will be fetched again, or nobody wants it
        return
    slot = taker.slot
    located = error.at(topic=slot.partition.topic, partition=slot.partition.partition, broker=broker)
    taker.tell(BatchUnreadable(slot.partition, slot.generation, run, located))
