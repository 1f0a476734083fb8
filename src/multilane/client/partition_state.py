"""What the application knows of one of its partitions.

Thread: application; owned by the front.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multilane.client.fetch.cursor import At
from multilane.types import NO_EPOCH, LeaderEpoch, Offset, OffsetAndMetadata

if TYPE_CHECKING:
    from uuid import UUID

    from multilane.client.fetch.cursor import Start
    from multilane.errors import MultilaneError


class PartitionState:
    __slots__ = (
        "before",
        "end",
        "epoch",
        "failure",
        "generation",
        "moved_in",
        "paused",
        "position",
        "start",
        "told",
        "topic_id",
    )

    def __init__(self, generation: int, start: Start | None) -> None:
        self.generation = generation
        self.start = start
        self.position: Offset | None = start.offset if isinstance(start, At) else None
        self.epoch = start.epoch if isinstance(start, At) else NO_EPOCH  # of the last record before the position
        self.topic_id = start.topic_id if isinstance(start, At) else None  # of the log that the position is in
        self.before: OffsetAndMetadata | None = None  # where it stood before the poll in which it last moved
        self.moved_in = 0
        self.end: int | None = None  # of the log as far as we may read it, when the last block was fetched
        self.paused = False
        self.failure: MultilaneError | None = None
        self.told = False  # whether poll has raised the failure

    def place(self) -> OffsetAndMetadata | None:
        if self.position is None:
            return None
        return OffsetAndMetadata(self.position, self.epoch, topic_id=self.topic_id)

    def move(self, offset: Offset, epoch: LeaderEpoch, poll: int) -> None:
        """What is handed out in one poll is done with when the next begins."""
        if self.moved_in != poll:
            self.before, self.moved_in = self.place(), poll
        self.position, self.epoch = offset, epoch

    def put(self, offset: Offset, epoch: LeaderEpoch, poll: int, topic_id: UUID | None = None) -> None:
        """Where the log itself has put us. Nothing was handed out by that, and what was before it is not there."""
        self.position, self.epoch = offset, epoch
        self.topic_id = topic_id or self.topic_id
        if self.moved_in == poll:
            self.before = self.place()
