"""Reads ranges of offsets in a Spark worker process.

Thread: the task's; a worker runs one task at a time.

A worker process serves one task after the other, often for the same partitions. Consumers live as long as the process,
with their connections, their prefetched data and the rest of a block that a range cut. So the next batch starts with
bytes that are here already. Owns the readers of this process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np

from multilane.client.consumer import Consumer
from multilane.clock import Clock, SystemClock
from multilane.errors import DataLoss, OffsetOutOfRange, OperationTimeout
from multilane.logs import logger
from multilane.spark.ranges import Range
from multilane.types import TopicPartition
from multilane.wire.records.block import Block

log = logger(__name__)

_MOST_READERS: Final = 4  # of different properties in one process
_POLL_INTERVAL: Final = 0.25  # seconds; positions may move without rows, as past the end of a transaction
_OURS: Final = {"enable.auto.commit": False, "auto.offset.reset": "none"}
_BUFFER: Final = 64 << 20  # small, because there are as many workers as cores


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The part of the options that tasks need."""

    properties: Mapping[str, str] = field(repr=False)
    fail_on_data_loss: bool
    poll_seconds: float


@dataclass(slots=True)
class _Leftover:
    """Where the last range of a partition ended, and the blocks that the consumer handed out beyond it."""

    at: int
    blocks: list[Block]


class RangeReader:
    """A consumer and its leftovers."""

    def __init__(self, properties: Mapping[str, object], clock: Clock) -> None:
        properties = {name: value for name, value in properties.items() if name != "group.id"}
        self._consumer = Consumer({"fetch.buffer.bytes": _BUFFER, **properties, **_OURS})
        self._clock = clock
        self._leftovers: dict[TopicPartition, _Leftover] = {}  # of partitions whose last range was read completely

    def close(self) -> None:
        self._consumer.close(0)

    def read(self, ranges: Sequence[Range], options: ReadOptions) -> Iterator[Block]:
        waiting = sorted(ranges)
        while waiting:  # several ranges of a partition are read one after the other
            wave = {one.partition: one for one in reversed(waiting)}
            waiting = [one for one in waiting if wave[one.partition] is not one]
            yield from self._wave(wave, options)

    def _wave(self, wave: dict[TopicPartition, Range], options: ReadOptions) -> Iterator[Block]:
        self._consumer.assign(wave)
        self._consumer.resume(wave)
        leftovers, self._leftovers = self._leftovers, {}
        fetched: list[Block] = []
        for partition, one in wave.items():
            leftover = leftovers.get(partition)
            if leftover is not None and leftover.at == one.start:
                fetched += leftover.blocks
            else:
                self._consumer.seek(partition, one.start)
        pending = dict(wave)
        for block in chain(fetched, self._polled(pending, options)):
            piece = self._cut(pending, block, options)
            if len(piece):
                yield piece

    def _cut(self, pending: dict[TopicPartition, Range], block: Block, options: ReadOptions) -> Block:
        """The rows inside the range; rows beyond it are kept as leftovers."""
        partition = TopicPartition(block.topic, block.partition)
        one = pending.get(partition)
        if one is None:
            self._leftovers[partition].blocks.append(block)
            return block.slice(0, 0)
        if len(block) and block.offsets[0] < one.start:  # a recreated topic starts again at 0
            _lost(f"cannot read {one}: the log of {partition} starts again at {block.offsets[0]}", options)
            block = block.slice(int(np.searchsorted(block.offsets, one.start)))
        if block.next_offset < one.end:
            return block
        rows = int(np.searchsorted(block.offsets, one.end))
        self._finish(pending, partition)
        if rows < len(block):
            self._leftovers[partition].blocks.append(block.slice(rows))
        return block.slice(0, rows)

    def _finish(self, pending: dict[TopicPartition, Range], partition: TopicPartition) -> None:
        one = pending.pop(partition)
        self._consumer.pause([partition])
        self._leftovers[partition] = _Leftover(one.end, [])

    def _polled(self, pending: dict[TopicPartition, Range], options: ReadOptions) -> Iterator[Block]:
        """Polls until every range is complete."""
        deadline = self._clock.monotonic() + options.poll_seconds
        while pending:
            try:
                blocks = self._consumer.poll(_POLL_INTERVAL)
            except OffsetOutOfRange as error:
                self._skip_missing(pending, error, options)
                continue
            yield from blocks
            if blocks:
                deadline = self._clock.monotonic() + options.poll_seconds
            else:
                self._finish_empty_tails(pending)
                if pending and self._clock.monotonic() > deadline:
                    self._check_ends(pending, options)

    def _finish_empty_tails(self, pending: dict[TopicPartition, Range]) -> None:
        """Finishes ranges that end with transaction markers or gaps, which have no rows."""
        for partition, one in list(pending.items()):
            with suppress(OperationTimeout):
                if self._consumer.position(partition, 0) >= one.end:
                    self._finish(pending, partition)

    # --- missing records ---------------------------------------------------------------------------------------------

    def _skip_missing(
        self, pending: dict[TopicPartition, Range], error: OffsetOutOfRange, options: ReadOptions
    ) -> None:
        partition = TopicPartition(error.topic, error.partition)
        one = pending[partition]
        begin = self._consumer.beginning_offsets([partition])[partition]
        what = f"cannot read {one}: the log of {partition} begins at {begin}"
        if begin <= error.offset:
            what = f"cannot read {one}: the log of {partition} ends before it"
        _lost(what, options)
        if error.offset < begin < one.end:
            self._consumer.seek(partition, begin)
        else:
            self._finish(pending, partition)

    def _check_ends(self, pending: dict[TopicPartition, Range], options: ReadOptions) -> None:
        """After a poll timeout: raises where the log has the records, and reports a loss where it does not."""
        ends = self._consumer.end_offsets(pending)
        for partition, one in list(pending.items()):
            if ends[partition] >= one.end:
                raise OperationTimeout(
                    f"{one}: no record arrived for {options.poll_seconds:g} s (kafkaConsumer.pollTimeoutMs)"
                )
            _lost(f"cannot read {one}: the log of {partition} ends at {ends[partition]}", options)
            self._finish(pending, partition)


def _lost(what: str, options: ReadOptions) -> None:
    if options.fail_on_data_loss:
        raise DataLoss(f"{what}: records are gone. Set failOnDataLoss to false to continue without them")
    log.warning("%s: continuing without the missing records, because failOnDataLoss is false", what)


# --- the readers of this process -------------------------------------------------------------------------------------

_readers: dict[tuple[object, ...], RangeReader] = {}


def read_ranges(ranges: Sequence[Range], options: ReadOptions) -> Iterator[Block]:
    """The rows of these ranges, in order for each partition."""
    key = (os.getpid(), *sorted(options.properties.items()))
    reader = _readers.pop(key, None) or RangeReader(options.properties, SystemClock())
    _readers[key] = reader  # last in the dict: the first is the least recently used
    while len(_readers) > _MOST_READERS:
        _readers.pop(next(iter(_readers))).close()
    try:
        yield from reader.read(ranges, options)
    except Exception:
        _readers.pop(key, None)
        reader.close()
        raise
