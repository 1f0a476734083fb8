"""Builds offset lookups (beginning, end, times) and converts their results.

Thread: any (pure).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from multilane.client.arguments import at_time, by_partition, checked_partition, partition_list
from multilane.types import Offset, OffsetAndEpoch, OffsetAndTimestamp, PartitionLike, TopicPartition
from multilane.wire.compose import EARLIEST, LATEST, MAX_TIMESTAMP


def beginning(partitions: Collection[PartitionLike]) -> dict[TopicPartition, int]:
    return dict.fromkeys(partition_list(partitions), EARLIEST)


def end(partitions: Collection[PartitionLike]) -> dict[TopicPartition, int]:
    return dict.fromkeys(partition_list(partitions), LATEST)


def newest(partitions: Collection[PartitionLike]) -> dict[TopicPartition, int]:
    return dict.fromkeys(partition_list(partitions), MAX_TIMESTAMP)


def at_times(timestamps: Mapping[Any, int]) -> dict[TopicPartition, int]:
    given = by_partition(timestamps, "the time")
    return {checked_partition(p): at_time(timestamp).timestamp for p, timestamp in given.items()}


def at_epochs(epochs: Mapping[Any, int]) -> dict[TopicPartition, int]:
    given = by_partition(epochs, "the leader epoch")
    return {checked_partition(p): int(epoch) for p, epoch in given.items()}


def only_offsets(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> dict[TopicPartition, Offset]:
    """A lookup of the beginning or the end always finds an offset."""
    return {p: f.offset for p, f in found.items() if f is not None}


def with_epochs(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> dict[TopicPartition, OffsetAndEpoch]:
    """The offsets and epochs that were found."""
    return {p: OffsetAndEpoch(f.offset, f.leader_epoch) for p, f in found.items() if f is not None}
