"""Who of the members of a run is where, and what is to be done about it.

Thread: none (pure); one owner, the supervisor.

Nobody serves before everybody is ready: when a function cannot be imported, or there are fewer slots than members, no
offset has moved yet. After that each member is for itself: one that ends by itself is started again, the later the
more often it failed in a row, and the others do not notice.

    STARTING   Spark has its job; nothing was heard of it yet, or nothing any more
    READY      it runs in a slot, has found the application, and waits for the word
    SERVING    a member of its groups
    WAITING    its job ended by itself; it is started again when it is due
    DRAINING   told to end in order, or cancelled
    ENDED      for good
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


class SparkMemberState(enum.Enum):
    STARTING = "starting"
    READY = "ready"
    SERVING = "serving"
    WAITING = "waiting"
    DRAINING = "draining"
    ENDED = "ended"


TRANSITIONS: Final[Mapping[SparkMemberState, frozenset[SparkMemberState]]] = {
    SparkMemberState.STARTING: frozenset({SparkMemberState.READY, SparkMemberState.WAITING, SparkMemberState.DRAINING}),
    SparkMemberState.READY: frozenset(
        {SparkMemberState.STARTING, SparkMemberState.SERVING, SparkMemberState.WAITING, SparkMemberState.DRAINING}
    ),
    SparkMemberState.SERVING: frozenset(
        {SparkMemberState.STARTING, SparkMemberState.WAITING, SparkMemberState.DRAINING}
    ),
    SparkMemberState.WAITING: frozenset({SparkMemberState.STARTING, SparkMemberState.ENDED}),
    SparkMemberState.DRAINING: frozenset({SparkMemberState.ENDED}),
    SparkMemberState.ENDED: frozenset(),
}

_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_STEADY_AFTER: Final = 60.0  # seconds of service after which earlier failures do not count any more


class MemberAction(enum.Enum):
    """What the supervisor is asked to do for a member."""

    START = "start"
    SERVE = "serve"
    STOP = "stop"  # in order
    CANCEL = "cancel"  # it has not begun: at most it waits for a slot


Order = tuple[MemberAction, int]


@dataclass(slots=True)
class _Post:
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
    many: int
    is_open: bool = False  # everybody was ready once
    is_stopping: bool = False
    _posts: list[_Post] = field(init=False)

    def __post_init__(self) -> None:
        self._posts = [_Post() for _ in range(self.many)]

    # --- what is known -----------------------------------------------------------------------------------------------

    def count(self, *states: SparkMemberState) -> int:
        return sum(post.state in states for post in self._posts)

    def state(self, number: int) -> SparkMemberState:
        return self._posts[number].state

    @property
    def is_over(self) -> bool:
        return self.count(SparkMemberState.ENDED) == self.many

    def next_due(self) -> float | None:
        return min((post.due for post in self._posts if post.state is SparkMemberState.WAITING), default=None)

    # --- what happens ------------------------------------------------------------------------------------------------

    def begin(self) -> list[Order]:
        return [(MemberAction.START, number) for number in range(self.many)]

    def ready(self, number: int, now: float) -> list[Order]:
        """It waits for the word."""
        post = self._posts[number]
        if post.state in (SparkMemberState.WAITING, SparkMemberState.DRAINING, SparkMemberState.ENDED):
            return [
                (MemberAction.STOP, number)
            ]  # waiting: its job is known to have ended, and the next one is for its successor
        if (
            post.state is not SparkMemberState.STARTING
        ):  # Spark has started it again, before the line of the last one broke
            post.move(SparkMemberState.STARTING)
        post.move(SparkMemberState.READY)
        self.is_open = self.is_open or self.count(SparkMemberState.READY) == self.many
        if not self.is_open:
            return []
        served = [at for at, other in enumerate(self._posts) if other.state is SparkMemberState.READY]
        for at in served:
            self._posts[at].move(SparkMemberState.SERVING)
            self._posts[at].serving_since = now
        return [(MemberAction.SERVE, at) for at in served]

    def unheard(self, number: int) -> None:
        """Its line broke: Spark starts its task again, or its job is about to end."""
        post = self._posts[number]
        if post.state in (SparkMemberState.READY, SparkMemberState.SERVING):
            post.move(SparkMemberState.STARTING)

    def ended(self, number: int, now: float) -> float | None:
        """Its job has ended; the seconds until it is started again, if it is."""
        post = self._posts[number]
        if post.state is SparkMemberState.DRAINING:
            post.move(SparkMemberState.ENDED)
            return None
        if post.serving_since and now - post.serving_since >= _STEADY_AFTER:
            post.failures = 0
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**post.failures)
        post.failures += 1
        post.serving_since, post.due = 0.0, now + wait
        post.move(SparkMemberState.WAITING)
        return wait

    def due(self, now: float) -> list[Order]:
        """Those whose time to start again has come."""
        orders: list[Order] = []
        for number, post in enumerate(self._posts):
            if post.state is SparkMemberState.WAITING and post.due <= now:
                post.move(SparkMemberState.STARTING)
                orders.append((MemberAction.START, number))
        return orders

    def stop(self) -> list[Order]:
        self.is_stopping = True
        orders: list[Order] = []
        for number, post in enumerate(self._posts):
            if post.state is SparkMemberState.WAITING:
                post.move(SparkMemberState.ENDED)
            elif post.state not in (SparkMemberState.DRAINING, SparkMemberState.ENDED):
                has_begun = post.state is not SparkMemberState.STARTING or post.serving_since > 0
                post.move(SparkMemberState.DRAINING)
                orders.append((MemberAction.STOP if has_begun else MemberAction.CANCEL, number))
        return orders
