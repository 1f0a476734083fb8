"""The partitions that the application owns, and its one open rebalance step.

Thread: none (pure); belongs to a membership.

Partitions are owned from the start of their ASSIGNED step until the application has released them.
"""

from __future__ import annotations

from collections.abc import Callable

from multilane.client.group.membership import Change, RebalanceStep
from multilane.types import TopicPartition

PartitionSet = frozenset[TopicPartition]
NOTHING_HELD: PartitionSet = frozenset()


class OwnedPartitions:
    __slots__ = ("_send", "_ticket", "owned", "step")

    def __init__(self, send: Callable[[RebalanceStep], None]) -> None:
        self.owned = NOTHING_HELD
        self.step: RebalanceStep | None = None
        self._send = send
        self._ticket = 0

    def ask(self, change: Change, partitions: PartitionSet, deadline: float) -> None:
        if self.step is not None:
            raise AssertionError(f"a step is already open: {self.step}")
        self._ticket += 1
        self.step = RebalanceStep(self._ticket, change, partitions, deadline)
        if change is Change.ASSIGNED:
            self.owned |= partitions
        self._send(self.step)

    def done(self, ticket: int) -> RebalanceStep | None:
        """Closes and returns the open step; None for an old ticket."""
        step = self.step
        if step is None or step.ticket != ticket:
            return None
        self.step = None
        if step.change is not Change.ASSIGNED:
            self.owned -= step.partitions
        return step

    def drop(self) -> None:
        """The application has released everything by itself."""
        self.owned = NOTHING_HELD
        self.step = None
