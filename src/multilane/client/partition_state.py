"""The application side's state of one assigned partition.

Thread: application; owned by `AssignedPartitions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multilane.client.fetch.cursor import At
from multilane.types import NO_EPOCH, LeaderEpoch, Offset, OffsetAndMetadata

if TYPE_CHECKING:
    from uuid import UUID

    from multilane.client.fetch.cursor import StartPosition
    from multilane.errors import MultilaneError


class PartitionState:
    __slots__ = (
        "before",
        "end",
        "epoch",
        "failure",
        "failure_raised",
        "generation",
        "moved_in",
        "paused",
        "position",
        "start",
        "topic_id",
    )

    def __init__(self, generation: int, start: StartPosition | None) -> None:
        self.generation = generation
        self.start = start
        self.position: Offset | None = start.offset if isinstance(start, At) else None
        self.epoch = start.epoch if isinstance(start, At) else NO_EPOCH  # of the last record before the position
        self.topic_id = start.topic_id if isinstance(start, At) else None  # of the log that the position is in
        self.before: OffsetAndMetadata | None = None  # the position before the poll in which it last moved
        self.moved_in = 0
        self.end: int | None = None  # the readable end of the log when the last block was fetched
        self.paused = False
        self.failure: MultilaneError | None = None
        self.failure_raised = False  # whether poll has raised the failure

    def to_commit(self) -> OffsetAndMetadata | None:
        if self.position is None:
            return None
        return OffsetAndMetadata(self.position, self.epoch, topic_id=self.topic_id)

    def advance(self, offset: Offset, epoch: LeaderEpoch, poll: int) -> None:
        """Rows of one poll count as processed when the next poll begins."""
        if self.moved_in != poll:
            self.before, self.moved_in = self.to_commit(), poll
        self.position, self.epoch = offset, epoch

    def reset_to(self, offset: Offset, epoch: LeaderEpoch, poll: int, topic_id: UUID | None = None) -> None:
        """The log moved the position. No row was handed out, and the offsets before it do not exist."""
        self.position, self.epoch = offset, epoch
        self.topic_id = topic_id or self.topic_id
        if self.moved_in == poll:
            self.before = self.to_commit()
