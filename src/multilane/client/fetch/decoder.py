"""Decodes fetched frames on its own threads while the network thread receives the next frame.

Thread: decoder (a small pool, started on first use); the network thread itself for small, plain frames.

Each partition of a frame is decoded once for all consumers that wanted it: a block is immutable, and each consumer gets
it in a slot of its own buffer. A batch that cannot be decoded is reported to the network thread, which owns the
cursors. The kernels are loaded here too: that is the first job of a pool.
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

DecoderJob = Callable[[], None]


class DecoderPool:
    """Runs jobs in the order they come, on as many threads as there are cores to spare (two at most)."""

    def __init__(self, name: str, on_crash: Callable[[BaseException], None]) -> None:
        self._jobs: queue.SimpleQueue[DecoderJob | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._name = name
        self._on_crash = on_crash
        self._thread_limit = max(1, min(_MOST_THREADS, os.cpu_count() or 1))

    def submit(self, job: DecoderJob) -> None:
        if len(self._threads) < self._thread_limit:
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(job)

    def run(self, job: DecoderJob) -> None:
        """Runs a job on the calling thread: for jobs that are faster than a handover."""
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it must be reported: the frame is awaited
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
            del job  # do not keep a frame alive while idle


@dataclass(frozen=True, slots=True)
class Taker:
    """One consumer's slot for a block."""

    slot: Slot
    buffer: FetchBuffer
    send_event: Callable[[ApplicationEvent], None]
    again: bool  # the first batch was unreadable last time


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """One partition's records in a frame, to be decoded into the slots of all consumers that wanted them."""

    takers: tuple[Taker, ...]
    table: BatchTable
    fetched: FetchedPartition
    broker: str
    copy_out: bool = False  # a consumer would otherwise pin a large frame for a small share of it


@dataclass(frozen=True, slots=True)
class FrameJob:
    """All partitions of one frame that carry records."""

    frame: np.ndarray
    tasks: list[DecodeTask]
    options: DecodeOptions

    @property
    def is_quick(self) -> bool:
        """Whether decoding is faster than a handover: small frames of low-rate records. Compressed data may expand to
        any size."""
        return self.frame.nbytes <= _SMALL_FRAME and not any(_is_compressed(task.table) for task in self.tasks)

    def __call__(self) -> None:
        for task in self.tasks:
            if not all(taker.slot.is_discarded for taker in task.takers):  # a seek or revocation in the meantime
                self._decode(task)

    def _decode(self, task: DecodeTask) -> None:
        slot, fetched = task.takers[0].slot, task.fetched  # all have the same offset
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
                _report(taker, task.broker, error, taker.buffer.discard(taker.slot))
            return
        if task.copy_out and any(buffer is self.frame for buffer in block.columns.buffers):
            block = block.compact()
        block = block.with_watermarks(fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset)
        for taker in task.takers:
            _hand_over(taker, task.broker, block)


def _is_compressed(table: BatchTable) -> bool:
    return bool((table.rows[:, RowWord.ATTRIBUTES] & CODEC_MASK).any())


def _hand_over(taker: Taker, broker: str, block: Block) -> None:
    refetch_epoch = taker.buffer.fill(taker.slot, block)
    if block.error is not None:
        _report(taker, broker, block.error, refetch_epoch)
    elif taker.again:
        taker.send_event(BatchReadable(taker.slot.partition, taker.slot.generation))


def _report(taker: Taker, broker: str, error: RecordBatchError, refetch_epoch: int | None) -> None:
    if refetch_epoch is None:  # dropped by a seek or with a slot before it: it is fetched again or not wanted
        return
    slot = taker.slot
    located = error.at(topic=slot.partition.topic, partition=slot.partition.partition, broker=broker)
    taker.send_event(BatchUnreadable(slot.partition, slot.generation, refetch_epoch, located))
