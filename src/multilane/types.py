"""The small value types that every layer uses.

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


PartitionLike: TypeAlias = TopicPartition | tuple[str, int]  # accepted from callers as a partition


@dataclass(frozen=True, slots=True)
class Node:
    """A broker's address from the cluster's metadata."""

    id: NodeId
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.id} ({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The result of an offset lookup by time."""

    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch = NO_EPOCH


class OffsetAndEpoch(NamedTuple):
    """The end of a log, or of a leader epoch in it."""

    offset: Offset
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A group's commit for a partition: the offset of the next record to read, the leader epoch of the last one read
    (which shows whether the log was truncated), and a text of the committer. With a topic id it is not committed for a
    topic that was deleted and created again."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    topic_id: UUID | None = field(default=None, compare=False)
