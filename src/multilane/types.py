"""The small values that every layer speaks of.

Thread: any (frozen values).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, NewType, TypeAlias
from uuid import UUID

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
NodeId = NewType("NodeId", int)

NO_EPOCH = LeaderEpoch(-1)
NO_OFFSET = Offset(-1)


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


PartitionLike: TypeAlias = TopicPartition | tuple[str, int]  # what callers may write for a partition


@dataclass(frozen=True, slots=True)
class Node:
    """A broker's address as the cluster tells it."""

    id: NodeId
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.id} ({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """What a look-up by time found."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch = NO_EPOCH


class OffsetAndEpoch(NamedTuple):
    """Where a log, or a leader epoch of it, ends."""

    offset: Offset
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """What a group keeps for a partition: the offset of the next record to read, the leader epoch of the last one read
    (so that a cut log is noticed), and a text of the committer's own. With the id of the topic that it is an offset of,
    it is not committed for one that was made again."""

    offset: Offset
    leader_epoch: LeaderEpoch = NO_EPOCH
    metadata: str = ""
    topic_id: UUID | None = field(default=None, compare=False)
