"""Reads which keys have a backlog in a retry partition, when it is assigned.

Thread: loop.

Only keys and offsets are looked at; the records come again, through the group. Owns a consumer of its own for the time
of the scan, outside of any group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from multilane.client.async_consumer import AsyncConsumer
from multilane.commit.completion_map import Run
from multilane.commit.ledger import Ledger
from multilane.errors import OperationTimeout
from multilane.outcome.parking import Parking
from multilane.types import TopicPartition

_POLL: Final = 1.0
_IDLE_POLLS: Final = 30  # in a row without progress; then its leader is gone


async def scan(
    properties: Mapping[str, object], partition: TopicPartition, start: int, done: tuple[Run, ...]
) -> Parking:
    """The keys of what lies in the partition from `start` on, but for what is settled already. OperationTimeout when
    its leader does not answer any more: whoever asks may have been told to stop meanwhile."""
    parking = Parking(partition.topic)
    ledger = Ledger(start, done)
    async with AsyncConsumer(properties) as consumer:
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
                raise OperationTimeout(f"{partition} was read up to offset {position} of {end}, then nothing came")
            for block in await consumer.poll(_POLL):
                fresh = ledger.fresh(block.offsets)
                keys = block.keys.to_pylist()
                for row, (offset, key) in enumerate(zip(block.offsets.tolist(), keys, strict=True)):
                    if fresh is None or fresh[row]:
                        parking.seen(key, offset)
    return parking
