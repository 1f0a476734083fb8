"""Reads ranges of offsets in a Spark worker.

Thread: the task's; a worker runs one task at a time.

A worker process serves one task after the other, often of the same partitions: consumers live as long as it does, with
their connections, what they have fetched ahead and the rest of a block that a range cut. So the next batch begins with
bytes that are there already. Owns the readers of this process.
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
_LOOK: Final = 0.25  # seconds between looks at positions that move without rows, as over the end of a transaction
_OURS: Final = {"enable.auto.commit": False, "auto.offset.reset": "none"}
_BUFFER: Final = 64 << 20  # there are as many workers as cores


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a task has to know of the options."""

    properties: Mapping[str, str] = field(repr=False)
    fail_on_data_loss: bool
    poll_seconds: float


@dataclass(slots=True)
class _Place:
    """A range was read up to here; what the consumer had handed out beyond."""

    at: int
    rests: list[Block]


class RangeReader:
    """A consumer, and where it stands."""

    def __init__(self, properties: Mapping[str, object], clock: Clock) -> None:
        told = {name: value for name, value in properties.items() if name != "group.id"}
        self._consumer = Consumer({"fetch.buffer.bytes": _BUFFER, **told, **_OURS})
        self._clock = clock
        self._places: dict[TopicPartition, _Place] = {}  # of partitions whose last range was read to its end

    def close(self) -> None:
        self._consumer.close(0)

    def read(self, ranges: Sequence[Range], options: ReadOptions) -> Iterator[Block]:
        waiting = sorted(ranges)
        while waiting:  # a partition may have several: one after the other
            wave = {one.partition: one for one in reversed(waiting)}
            waiting = [one for one in waiting if wave[one.partition] is not one]
            yield from self._wave(wave, options)

    def _wave(self, wave: dict[TopicPartition, Range], options: ReadOptions) -> Iterator[Block]:
        self._consumer.assign(wave)
        self._consumer.resume(wave)
        places, self._places = self._places, {}
        fetched: list[Block] = []
        for partition, one in wave.items():
            place = places.get(partition)
            if place is not None and place.at == one.start:
                fetched += place.rests
            else:
                self._consumer.seek(partition, one.start)
        still = dict(wave)
        for block in chain(fetched, self._polled(still, options)):
            piece = self._cut(still, block, options)
            if len(piece):
                yield piece

    def _cut(self, still: dict[TopicPartition, Range], block: Block, options: ReadOptions) -> Block:
        """The rows that are wanted; those behind them are kept."""
        partition = TopicPartition(block.topic, block.partition)
        one = still.get(partition)
        if one is None:
            self._places[partition].rests.append(block)
            return block.slice(0, 0)
        if len(block) and block.offsets[0] < one.start:  # a topic that was made again is read from its beginning
            _lost(f"{one} is to be read, and the log of {partition} began anew at {block.offsets[0]}", options)
            block = block.slice(int(np.searchsorted(block.offsets, one.start)))
        if block.next_offset < one.end:
            return block
        rows = int(np.searchsorted(block.offsets, one.end))
        self._finish(still, partition)
        if rows < len(block):
            self._places[partition].rests.append(block.slice(rows))
        return block.slice(0, rows)

    def _finish(self, still: dict[TopicPartition, Range], partition: TopicPartition) -> None:
        one = still.pop(partition)
        self._consumer.pause([partition])
        self._places[partition] = _Place(one.end, [])

    def _polled(self, still: dict[TopicPartition, Range], options: ReadOptions) -> Iterator[Block]:
        """What comes, until nothing is missing any more."""
        deadline = self._clock.monotonic() + options.poll_seconds
        while still:
            try:
                blocks = self._consumer.poll(_LOOK)
            except OffsetOutOfRange as error:
                self._pass_over(still, error, options)
                continue
            yield from blocks
            if blocks:
                deadline = self._clock.monotonic() + options.poll_seconds
            else:
                self._finish_passed(still)
                if still and self._clock.monotonic() > deadline:
                    self._explain(still, options)

    def _finish_passed(self, still: dict[TopicPartition, Range]) -> None:
        """Markers and gaps at the end of a range have no rows."""
        for partition, one in list(still.items()):
            with suppress(OperationTimeout):
                if self._consumer.position(partition, 0) >= one.end:
                    self._finish(still, partition)

    # --- what is missing ---------------------------------------------------------------------------------------------

    def _pass_over(self, still: dict[TopicPartition, Range], error: OffsetOutOfRange, options: ReadOptions) -> None:
        partition = TopicPartition(error.topic, error.partition)
        one = still[partition]
        begin = self._consumer.beginning_offsets([partition])[partition]
        what = f"{one} is to be read, and the log of {partition} begins at {begin}"
        if begin <= error.offset:
            what = f"{one} is to be read, and the log of {partition} does not reach so far"
        _lost(what, options)
        if error.offset < begin < one.end:
            self._consumer.seek(partition, begin)
        else:
            self._finish(still, partition)

    def _explain(self, still: dict[TopicPartition, Range], options: ReadOptions) -> None:
        """Nothing came for long: is there nothing?"""
        ends = self._consumer.end_offsets(still)
        for partition, one in list(still.items()):
            if ends[partition] >= one.end:
                raise OperationTimeout(
                    f"{one}: no record came for {options.poll_seconds:g} s (kafkaConsumer.pollTimeoutMs)"
                )
            _lost(f"{one} is to be read, and the log of {partition} ends at {ends[partition]}", options)
            self._finish(still, partition)


def _lost(what: str, options: ReadOptions) -> None:
    if options.fail_on_data_loss:
        raise DataLoss(f"{what}: records are gone. Set failOnDataLoss to false to go on without them")
    log.warning("%s: going on without what is missing, as failOnDataLoss is false", what)


# --- the readers of this process -------------------------------------------------------------------------------------

_readers: dict[tuple[object, ...], RangeReader] = {}


def read_ranges(ranges: Sequence[Range], options: ReadOptions) -> Iterator[Block]:
    """The rows of these ranges, in order for each partition."""
    key = (os.getpid(), *sorted(options.properties.items()))
    reader = _readers.pop(key, None) or RangeReader(options.properties, SystemClock())
    _readers[key] = reader  # behind the others: the first is the one that was not used for longest
    while len(_readers) > _MOST_READERS:
        _readers.pop(next(iter(_readers))).close()
    try:
        yield from reader.read(ranges, options)
    except Exception:
        _readers.pop(key, None)
        reader.close()
        raise
