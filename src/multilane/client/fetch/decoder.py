"""Decodes fetched frames on threads of its own, while the network thread receives the next.

Thread: decoder (a small pool, started on first use).

Each partition of a frame is decoded once into its slot of the buffer. What cannot be decoded is told to the network
thread, which owns the cursors. The kernels are loaded here too: the first job of a pool.
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

if TYPE_CHECKING:
    import numpy as np

    from multilane.client.fetch.buffer import FetchBuffer
    from multilane.client.fetch.fetching import DecodeTask

_MOST_THREADS: Final = 2

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

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)

    def join(self, timeout: float) -> None:
        for thread in self._threads:
            thread.join(timeout)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - whatever it is, nobody may wait for this frame in silence
                with contextlib.suppress(Exception):
                    self._on_crash(error)
            del job  # not to keep a frame alive while there is nothing to do


@dataclass(frozen=True, slots=True)
class FrameJob:
    """All partitions of one frame that carry records."""

    frame: np.ndarray
    tasks: list[DecodeTask]
    options: DecodeOptions
    buffer: FetchBuffer
    tell: Callable[[ApplicationEvent], None]

    def __call__(self) -> None:
        for task in self.tasks:
            if not task.slot.void:  # seeked away or revoked in the meantime
                self._decode(task)

    def _decode(self, task: DecodeTask) -> None:
        slot, fetched = task.slot, task.fetched
        partition = slot.partition
        try:
            block = decode(
                self.frame,
                task.table,
                self.options,
                topic=partition.topic,
                partition=partition.partition,
                fetch_offset=slot.offset,
                aborted=fetched.aborted,
            )
        except RecordBatchError as error:
            self._report(task, error, self.buffer.void(slot))
            return
        run = self.buffer.fill(
            slot, block.with_watermarks(fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset)
        )
        if block.error is not None:
            self._report(task, block.error, run)
        elif task.again:
            self.tell(BatchReadable(partition, slot.generation))

    def _report(self, task: DecodeTask, error: RecordBatchError, run: int | None) -> None:
        if run is None:  # sought away, or voided with one before it: it will be fetched again, or nobody wants it
            return
        slot = task.slot
        located = error.at(topic=slot.partition.topic, partition=slot.partition.partition, broker=task.broker)
        self.tell(BatchUnreadable(slot.partition, slot.generation, run, located))
