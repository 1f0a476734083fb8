"""Finds the keys that have a backlog in a retry partition, when the partition is assigned.

Thread: loop.

Reads only keys and offsets; the group's consumer delivers the records later. A scan has its own consumer, outside any
group. Most retry partitions are empty: if one request has looked up the ends of several, an empty one needs no scan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.commit.ledger import Ledger
from multilane.commit.runs import Run
from multilane.errors import OperationTimeout
from multilane.lanes.uninterrupted import uninterrupted
from multilane.metrics.observer import NO_OBSERVER
from multilane.outcome.parking import Parking
from multilane.types import TopicPartition

_POLL: Final = 1.0
_IDLE_POLLS: Final = 30  # polls in a row without progress, after which the leader counts as gone
_FRESH: Final = 5.0  # seconds for which an end is valid: partitions that begin together are set up one after the other


class LooksUpEnds(Protocol):
    async def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]: ...


class Backlogs:
    def __init__(self, properties: Mapping[str, object], clock: Clock) -> None:
        """`properties`: those of the scanning consumer."""
        self._properties = properties
        self._clock = clock
        self.observer = NO_OBSERVER  # the group's own, when it has one: then a scan uses its network thread
        self._ends: Mapping[TopicPartition, int] = {}
        self._known_until = 0.0

    async def look_up(self, consumer: LooksUpEnds, partitions: Collection[TopicPartition]) -> None:
        """Look up the ends of all of these, in one request per broker, for the calls of `parking` right after."""
        self._ends = await uninterrupted(lambda: consumer.end_offsets(partitions))
        self._known_until = self._clock.monotonic() + _FRESH

    async def parking(self, partition: TopicPartition, start: int, done: tuple[Run, ...]) -> Parking:
        end = self._ends.get(partition) if self._clock.monotonic() < self._known_until else None
        if end is not None and start >= end:
            return Parking(partition.topic)
        async with AsyncConsumer(self._properties, clock=self._clock, observer=self.observer) as consumer:
            return await scan(consumer, partition, start, done)


async def scan(consumer: AsyncConsumer, partition: TopicPartition, start: int, done: tuple[Run, ...]) -> Parking:
    """The keys of the records in the partition from `start` on, except for those that are settled already. Raises
    OperationTimeout if the partition's leader stops answering: the caller may have been stopped meanwhile."""
    parking = Parking(partition.topic)
    ledger = Ledger(start, done)
    end = (await consumer.end_offsets([partition]))[partition]
    begin = (await consumer.beginning_offsets([partition]))[partition]
    if max(start, begin) >= end:
        return parking
    consumer.assign([partition])
    consumer.seek(partition, max(start, begin))
    idle, before = 0, -1
    while (position := await consumer.position(partition)) < end:
        idle, before = idle + 1 if position == before else 0, position
        if idle > _IDLE_POLLS:
            raise OperationTimeout(f"{partition} was read up to offset {position} of {end}, then no records came")
        for block in await consumer.poll(_POLL):
            fresh = ledger.fresh(block.offsets)
            keys = block.keys.to_pylist()
            for row, (offset, key) in enumerate(zip(block.offsets.tolist(), keys, strict=True)):
                if fresh is None or fresh[row]:
                    parking.seen(key, offset)
    return parking
