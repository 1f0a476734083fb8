"""Finds where a trigger begins that comes later to a group that is shared already.

Thread: loop; uses the caller's consumer.

`from` says where: at the log's start, at its end, or at a time. The others and the committed offset stay where they
are. Says what retention has taken from the trigger, as far as the log shows it. Owns nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol, TypeVar

from multilane.config.app.late_start import LOG_END, LOG_START, milliseconds_of
from multilane.lanes.uninterrupted import uninterrupted
from multilane.logs import logger
from multilane.types import Offset, OffsetAndTimestamp, TopicPartition

log = logger(__name__)

_PATIENCE: Final = 10.0  # seconds; whoever waits for the partition tries again
T = TypeVar("T")


class FindsOffsets(Protocol):
    """The part of a consumer that is needed here."""

    async def beginning_offsets(
        self, partitions: list[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]: ...

    async def end_offsets(
        self, partitions: list[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]: ...

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]: ...


async def late_offset(consumer: FindsOffsets, partition: TopicPartition, name: str, begin: str) -> int:
    """The offset where this trigger begins. `begin`: a word or a time of the configuration."""
    if begin == LOG_END:
        offset = await _end(consumer, partition)
        log.info("%s: trigger %s is new and begins at the end of the log, offset %d", partition, name, offset)
        return offset
    start = (await _asked(lambda: consumer.beginning_offsets([partition], _PATIENCE)))[partition]
    if begin == LOG_START:
        offset = start
        log.info("%s: trigger %s is new and begins at the start of the log, offset %d", partition, name, offset)
    else:
        offset = await _at_time(consumer, partition, begin)
        log.info("%s: trigger %s is new and begins at offset %d (from: %s)", partition, name, offset, begin)
    if offset == start > 0:
        _warn_of_lost(partition, name, start, begin)
    return offset


def _warn_of_lost(partition: TopicPartition, name: str, start: int, begin: str) -> None:
    """Which of the lost records were newer than a time is not known."""
    which = "all" if begin == LOG_START else f"those since {begin}"
    log.warning(
        "%s: trigger %s was to handle %s of its records, but the log starts at offset %d: retention or a deletion has "
        "taken the %d offsets below it. It begins there",
        *(partition, name, which, start, start),
    )


async def _at_time(consumer: FindsOffsets, partition: TopicPartition, time: str) -> int:
    found = await _asked(lambda: consumer.offsets_for_times({partition: milliseconds_of(time)}, _PATIENCE))
    first = found[partition]
    return await _end(consumer, partition) if first is None else int(first.offset)


async def _end(consumer: FindsOffsets, partition: TopicPartition) -> int:
    return int((await _asked(partial(consumer.end_offsets, [partition], _PATIENCE)))[partition])


async def _asked(call: Callable[[], Awaitable[T]]) -> T:
    return await uninterrupted(call)
