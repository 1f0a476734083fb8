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


class State(enum.Enum):
    STARTING = "starting"
    READY = "ready"
    SERVING = "serving"
    WAITING = "waiting"
    DRAINING = "draining"
    ENDED = "ended"


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.STARTING: frozenset({State.READY, State.WAITING, State.DRAINING}),
    State.READY: frozenset({State.STARTING, State.SERVING, State.WAITING, State.DRAINING}),
    State.SERVING: frozenset({State.STARTING, State.WAITING, State.DRAINING}),
    State.WAITING: frozenset({State.STARTING, State.ENDED}),
    State.DRAINING: frozenset({State.ENDED}),
    State.ENDED: frozenset(),
}

_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_STEADY_AFTER: Final = 60.0  # seconds of service after which earlier failures do not count any more


class Do(enum.Enum):
    """What the supervisor is asked to do for a member."""

    START = "start"
    SERVE = "serve"
    STOP = "stop"  # in order
    CANCEL = "cancel"  # it has not begun: at most it waits for a slot


Order = tuple[Do, int]


@dataclass(slots=True)
class _Post:
    state: State = State.STARTING
    failures: int = 0  # in a row
    serving_since: float = 0.0  # in this job; 0: not yet
    due: float = 0.0

    def move(self, state: State) -> None:
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

    def count(self, *states: State) -> int:
        return sum(post.state in states for post in self._posts)

    def state(self, number: int) -> State:
        return self._posts[number].state

    @property
    def is_over(self) -> bool:
        return self.count(State.ENDED) == self.many

    def next_due(self) -> float | None:
        return min((post.due for post in self._posts if post.state is State.WAITING), default=None)

    # --- what happens ------------------------------------------------------------------------------------------------

    def begin(self) -> list[Order]:
        return [(Do.START, number) for number in range(self.many)]

    def ready(self, number: int, now: float) -> list[Order]:
        """It waits for the word."""
        post = self._posts[number]
        if post.state in (State.WAITING, State.DRAINING, State.ENDED):
            return [(Do.STOP, number)]  # waiting: its job is known to have ended, and the next one is for its successor
        if post.state is not State.STARTING:  # Spark has started it again, before the line of the last one broke
            post.move(State.STARTING)
        post.move(State.READY)
        self.is_open = self.is_open or self.count(State.READY) == self.many
        if not self.is_open:
            return []
        served = [at for at, other in enumerate(self._posts) if other.state is State.READY]
        for at in served:
            self._posts[at].move(State.SERVING)
            self._posts[at].serving_since = now
        return [(Do.SERVE, at) for at in served]

    def unheard(self, number: int) -> None:
        """Its line broke: Spark starts its task again, or its job is about to end."""
        post = self._posts[number]
        if post.state in (State.READY, State.SERVING):
            post.move(State.STARTING)

    def ended(self, number: int, now: float) -> float | None:
        """Its job has ended; the seconds until it is started again, if it is."""
        post = self._posts[number]
        if post.state is State.DRAINING:
            post.move(State.ENDED)
            return None
        if post.serving_since and now - post.serving_since >= _STEADY_AFTER:
            post.failures = 0
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0**post.failures)
        post.failures += 1
        post.serving_since, post.due = 0.0, now + wait
        post.move(State.WAITING)
        return wait

    def due(self, now: float) -> list[Order]:
        """Those whose time to start again has come."""
        orders: list[Order] = []
        for number, post in enumerate(self._posts):
            if post.state is State.WAITING and post.due <= now:
                post.move(State.STARTING)
                orders.append((Do.START, number))
        return orders

    def stop(self) -> list[Order]:
        self.is_stopping = True
        orders: list[Order] = []
        for number, post in enumerate(self._posts):
            if post.state is State.WAITING:
                post.move(State.ENDED)
            elif post.state not in (State.DRAINING, State.ENDED):
                has_begun = post.state is not State.STARTING or post.serving_since > 0
                post.move(State.DRAINING)
                orders.append((Do.STOP if has_begun else Do.CANCEL, number))
        return orders
