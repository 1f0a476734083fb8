"""The one step of a rebalance that the application is asked to take.

Thread: none (pure); belongs to the membership that made it, on the network thread.

At most one is open. It stays open until its ticket comes back, also when the member is fenced meanwhile: the
application is in the middle of it, and the next one comes after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from multilane.client.group.consumer_protocol.reconciliation import Numbered
from multilane.client.group.membership import Change, RebalanceStep
from multilane.types import TopicPartition


@dataclass(frozen=True, slots=True)
class OpenStep:
    step: RebalanceStep
    partitions: frozenset[Numbered]


class Steps:
    def __init__(self, tell: Callable[[RebalanceStep], None]) -> None:
        self._tell = tell
        self._tickets = 0
        self._open: OpenStep | None = None

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def begin(
        self,
        change: Change,
        names: frozenset[TopicPartition],
        deadline: float,
        partitions: frozenset[Numbered] = frozenset(),
    ) -> None:
        if self._open is not None:
            raise AssertionError(f"{change.value}: {self._open.step.change.value} is not done yet")
        self._tickets += 1
        step = RebalanceStep(self._tickets, change, names, deadline)
        self._open = OpenStep(step, partitions)
        self._tell(step)

    def close(self, ticket: int) -> OpenStep | None:
        """The step with this ticket, if it is the open one."""
        if self._open is None or self._open.step.ticket != ticket:
            return None
        done, self._open = self._open, None
        return done

    def forget(self) -> None:
        """The application has given up everything by itself: nobody waits for the ticket."""
        self._open = None
