"""The states of a classic member and the moves between them: everything that affects them is in this table.

Thread: none (pure).

    OUTSIDE      no member and no wish to be one
    JOINING      JoinGroup is to be sent, or the group waits for its other members; the coordinator may be unknown yet
    REVOKING     the application gives up what JoinGroup must not find in its hands (eager: everything)
    SYNCING      a member of this generation, whose assignment is awaited (and made, where we lead)
    RECONCILING  the application gives up what is not ours any more and begins with what is
    STABLE       nothing to do but to say that we are there
    AWAY         the application has not polled for max.poll.interval.ms: we left, and it does not know yet
    LOSING       no member any more; the application gives up everything, and then we join anew
    LEAVING      LeaveGroup is under way
    FAILED       the group will not have us, or another took our place; only leaving ends it

At most one step of the application is open, and only in REVOKING, RECONCILING, AWAY and LOSING. A step that was open
when the membership was lost is waited for in LOSING; what is left afterwards is lost in a step of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class State(enum.Enum):
    OUTSIDE = "outside"
    JOINING = "joining"
    REVOKING = "revoking"
    SYNCING = "syncing"
    RECONCILING = "reconciling"
    STABLE = "stable"
    AWAY = "away"
    LOSING = "losing"
    LEAVING = "leaving"
    FAILED = "failed"


_ENDS: Final = frozenset({State.AWAY, State.LOSING, State.LEAVING})

TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.OUTSIDE: frozenset({State.JOINING}),
    State.JOINING: frozenset({State.REVOKING, State.SYNCING}) | _ENDS,
    State.REVOKING: frozenset({State.JOINING}) | _ENDS,
    State.SYNCING: frozenset({State.JOINING, State.REVOKING, State.RECONCILING}) | _ENDS,
    State.RECONCILING: frozenset({State.STABLE}) | _ENDS,
    State.STABLE: frozenset({State.JOINING, State.REVOKING}) | _ENDS,
    State.AWAY: frozenset({State.LOSING, State.LEAVING}),
    State.LOSING: frozenset({State.JOINING, State.LEAVING, State.FAILED}),
    State.LEAVING: frozenset({State.OUTSIDE}),
    State.FAILED: frozenset({State.LEAVING}),
}

# Where the coordinator counts on our heartbeats. While it holds our JoinGroup it does not.
BEATING: Final = frozenset({State.REVOKING, State.SYNCING, State.RECONCILING, State.STABLE})
# Where a group has us, or is about to.
MEMBER: Final = BEATING | {State.JOINING}


def checked(now: State, then: State) -> State:
    """The next state; a move that the table does not have is a defect of ours."""
    if then not in TRANSITIONS[now]:
        raise AssertionError(f"classic membership: no move from {now.value} to {then.value}")
    return then
