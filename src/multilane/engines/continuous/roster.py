"""The state of each member of a run, and what the supervisor has to do about it.

Thread: none (pure); one owner, the supervisor.

No member serves before all are ready: when a function cannot be imported, or there are fewer slots than members, no
offset has moved yet. After that each member is on its own: one that ends is restarted, with a longer wait for each
failure in a row, and the others do not notice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from multilane.engines.continuous.states import TRANSITIONS, MemberAction, SparkMemberState

_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_STEADY_AFTER: Final = 60.0  # seconds of service after which earlier failures no longer count


Order = tuple[MemberAction, int]


@dataclass(slots=True)
class _Member:
    state: SparkMemberState = SparkMemberState.STARTING
    failures: int = 0  # in a row
    serving_since: float = 0.0  # in this job; 0: not yet
    due: float = 0.0

    def move(self, state: SparkMemberState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"a member goes from {self.state.name} to {state.name}")
        self.state = state


@dataclass(slots=True)
class Roster:
    size: int
    is_open: bool = False  # all members were ready once
    is_stopping: bool = False
    _members: list[_Member] = field(init=False)

    def __post_init__(self) -> None:
        self._members = [_Member() for _ in range(self.size)]

    # --- queries -----------------------------------------------------------------------------------------------------

    def count(self, *states: SparkMemberState) -> int:
        return sum(member.state in states for member in self._members)

    def state(self, number: int) -> SparkMemberState:
        return self._members[number].state

    @property
    def is_over(self) -> bool:
        return self.count(SparkMemberState.ENDED) == self.size

    def next_due(self) -> float | None:
        """When the next restart is due."""
        waiting = (member.due for member in self._members if member.state is SparkMemberState.WAITING)
        return min(waiting, default=None)

    # --- events ------------------------------------------------------------------------------------------------------

    def begin(self) -> list[Order]:
        return [(MemberAction.START, number) for number in range(self.size)]

    def ready(self, number: int, now: float) -> list[Order]:
        """The member waits for permission to serve."""
        member = self._members[number]
        if member.state in (SparkMemberState.WAITING, SparkMemberState.DRAINING, SparkMemberState.ENDED):
            # WAITING: its job is known to have ended, and the next job is for its successor.
            return [(MemberAction.STOP, number)]
        if member.state is not SparkMemberState.STARTING:
            # Spark restarted the task before the channel of its last attempt closed.
            member.move(SparkMemberState.STARTING)
        member.move(SparkMemberState.READY)
        self.is_open = self.is_open or self.count(SparkMemberState.READY) == self.size
        if not self.is_open:
            return []
        ready = [at for at, other in enumerate(self._members) if other.state is SparkMemberState.READY]
        for at in ready:
            self._members[at].move(SparkMemberState.SERVING)
            self._members[at].serving_since = now
        return [(MemberAction.SERVE, at) for at in ready]

    def disconnected(self, number: int) -> None:
        """Its channel closed: Spark restarts its task, or its job is about to end."""
        member = self._members[number]
        if member.state in (SparkMemberState.READY, SparkMemberState.SERVING):
            member.move(SparkMemberState.STARTING)

    def ended(self, number: int, now: float) -> float | None:
        """Its job has ended. Returns the seconds until its restart; None if it is not restarted."""
        member = self._members[number]
        if member.state is SparkMemberState.DRAINING:
            member.move(SparkMemberState.ENDED)
            return None
        if member.serving_since and now - member.serving_since >= _STEADY_AFTER:
            member.failures = 0
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**member.failures)
        member.failures += 1
        member.serving_since, member.due = 0.0, now + wait
        member.move(SparkMemberState.WAITING)
        return wait

    def due(self, now: float) -> list[Order]:
        """The restarts that are due."""
        orders: list[Order] = []
        for number, member in enumerate(self._members):
            if member.state is SparkMemberState.WAITING and member.due <= now:
                member.move(SparkMemberState.STARTING)
                orders.append((MemberAction.START, number))
        return orders

    def stop(self) -> list[Order]:
        self.is_stopping = True
        orders: list[Order] = []
        for number, member in enumerate(self._members):
            if member.state is SparkMemberState.WAITING:
                member.move(SparkMemberState.ENDED)
            elif member.state not in (SparkMemberState.DRAINING, SparkMemberState.ENDED):
                has_begun = member.state is not SparkMemberState.STARTING or member.serving_since > 0
                member.move(SparkMemberState.DRAINING)
                orders.append((MemberAction.STOP if has_begun else MemberAction.CANCEL, number))
        return orders
