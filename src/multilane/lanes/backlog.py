"""Finds the keys that have a backlog in a retry partition, when the partition is assigned.

Thread: loop.

Reads only keys and offsets; the group's consumer delivers the records later. Owns a consumer for the time of the scan,
outside any group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from multilane.client.async_consumer import AsyncConsumer
from multilane.commit.completion_map import Run
from multilane.commit.ledger import Ledger
from multilane.outcome.parking import Parking
from multilane.types import TopicPartition

_POLL: Final = 1.0


async def scan(
    properties: Mapping[str, object], partition: TopicPartition, start: int, done: tuple[Run, ...]
) -> Parking:
    """The keys of the records in the partition from `start` on, except for those that are settled already."""
    parking = Parking(partition.topic)
    ledger = Ledger(start, done)
    async with AsyncConsumer(properties) as consumer:
        end = (await consumer.end_offsets([partition]))[partition]
        begin = (await consumer.beginning_offsets([partition]))[partition]
        if max(start, begin) >= end:
            return parking
        consumer.assign([partition])
        consumer.seek(partition, max(start, begin))
        while await consumer.position(partition) < end:
            for block in await consumer.poll(_POLL):
                fresh = ledger.fresh(block.offsets)
                keys = block.keys.to_pylist()
                for row, (offset, key) in enumerate(zip(block.offsets.tolist(), keys, strict=True)):
                    if fresh is None or fresh[row]:
                        parking.seen(key, offset)
    return parking
