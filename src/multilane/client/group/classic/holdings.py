"""What the application holds, and the one step it is asked to take.

Thread: none (pure); belongs to a membership.

Partitions are held from the moment the application is told to begin with them until it says that it gave them up.
"""

from __future__ import annotations

from collections.abc import Callable

from multilane.client.group.membership import Change, RebalanceStep
from multilane.types import TopicPartition

Partitions = frozenset[TopicPartition]
NOTHING_HELD: Partitions = frozenset()


class Holdings:
    __slots__ = ("_tell", "_ticket", "owned", "step")

    def __init__(self, tell: Callable[[RebalanceStep], None]) -> None:
        self.owned = NOTHING_HELD
        self.step: RebalanceStep | None = None
        self._tell = tell
        self._ticket = 0

    def ask(self, change: Change, partitions: Partitions, deadline: float) -> None:
        if self.step is not None:
            raise AssertionError(f"a step is open already: {self.step}")
        self._ticket += 1
        self.step = RebalanceStep(self._ticket, change, partitions, deadline)
        if change is Change.ASSIGNED:
            self.owned |= partitions
        self._tell(self.step)

    def done(self, ticket: int) -> RebalanceStep | None:
        """The step that is done now; None for an old ticket."""
        step = self.step
        if step is None or step.ticket != ticket:
            return None
        self.step = None
        if step.change is not Change.ASSIGNED:
            self.owned -= step.partitions
        return step

    def drop(self) -> None:
        """The application has given up everything by itself."""
        self.owned = NOTHING_HELD
        self.step = None
