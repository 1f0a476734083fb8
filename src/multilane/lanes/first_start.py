"""Warns about records that a group skips when it reads partitions for the first time and begins at their ends.

Thread: loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from multilane.client.async_consumer import AsyncConsumer
from multilane.errors import MultilaneError
from multilane.lanes.uninterrupted import uninterrupted
from multilane.logs import logger
from multilane.types import TopicPartition

log = logger(__name__)

_PATIENCE: Final = 5.0  # seconds to look up where logs begin, which only the warning needs


async def warn_of_skipped(
    consumer: AsyncConsumer, positions: Mapping[TopicPartition, int], from_beginning: Collection[str]
) -> None:
    """`positions`: where partitions without a committed offset begin. Topics in `from_beginning` are not
    reported."""
    partitions = [p for p, position in positions.items() if p.topic not in from_beginning and position > 0]
    if not partitions:
        return
    begins = await _beginnings(consumer, partitions)
    skipped = {p: positions[p] - begins[p] for p in partitions if p in begins and positions[p] > begins[p]}
    if skipped:
        topics = ", ".join(sorted({p.topic for p in skipped}))
        log.warning(
            "%d partitions of %s have no committed offset and are read from their ends (offsetInitial: newest). "
            "%d existing records are skipped. Set offsetInitial: oldest to handle them",
            *(len(skipped), topics, sum(skipped.values())),
        )


async def _beginnings(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
    try:
        return await uninterrupted(lambda: consumer.beginning_offsets(partitions, _PATIENCE))
    except MultilaneError as error:
        log.warning("cannot count the records that this first start skips: %s", error)
        return {}
