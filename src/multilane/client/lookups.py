"""Where logs begin and end, as questions and as answers.

Thread: any (pure).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from multilane.types import Offset, OffsetAndEpoch, OffsetAndTimestamp, TopicPartition
from multilane.wire.compose import EARLIEST, LATEST


def beginning(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return dict.fromkeys(partitions, EARLIEST)


def end(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return dict.fromkeys(partitions, LATEST)


def only_offsets(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> dict[TopicPartition, Offset]:
    """Look-ups of the beginning or the end always find one."""
    return {p: f.offset for p, f in found.items() if f is not None}


def with_epochs(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> dict[TopicPartition, OffsetAndEpoch]:
    """Those that were found."""
    return {p: OffsetAndEpoch(f.offset, f.leader_epoch) for p, f in found.items() if f is not None}
