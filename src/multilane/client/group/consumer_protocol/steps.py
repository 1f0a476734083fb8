"""The open rebalance step of the application.

Thread: none (pure); belongs to the membership that made it, on the network thread.

At most one step is open. It stays open until its ticket comes back, even if the member is fenced in the meantime: the
application is in the middle of it, and the next step follows.
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
    def __init__(self, send: Callable[[RebalanceStep], None]) -> None:
        self._send = send
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
        self._send(step)

    def close(self, ticket: int) -> OpenStep | None:
        """The step with this ticket, if it is the open one."""
        if self._open is None or self._open.step.ticket != ticket:
            return None
        done, self._open = self._open, None
        return done

    def forget(self) -> None:
        """The application has released everything by itself: the ticket is no longer awaited."""
        self._open = None
