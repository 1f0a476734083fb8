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


class ClassicState(enum.Enum):
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


_ENDS: Final = frozenset({ClassicState.AWAY, ClassicState.LOSING, ClassicState.LEAVING})

TRANSITIONS: Final[Mapping[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.OUTSIDE: frozenset({ClassicState.JOINING}),
    ClassicState.JOINING: frozenset({ClassicState.REVOKING, ClassicState.SYNCING}) | _ENDS,
    ClassicState.REVOKING: frozenset({ClassicState.JOINING}) | _ENDS,
    ClassicState.SYNCING: frozenset({ClassicState.JOINING, ClassicState.REVOKING, ClassicState.RECONCILING}) | _ENDS,
    ClassicState.RECONCILING: frozenset({ClassicState.STABLE}) | _ENDS,
    ClassicState.STABLE: frozenset({ClassicState.JOINING, ClassicState.REVOKING}) | _ENDS,
    ClassicState.AWAY: frozenset({ClassicState.LOSING, ClassicState.LEAVING}),
    ClassicState.LOSING: frozenset({ClassicState.JOINING, ClassicState.LEAVING, ClassicState.FAILED}),
    ClassicState.LEAVING: frozenset({ClassicState.OUTSIDE}),
    ClassicState.FAILED: frozenset({ClassicState.LEAVING}),
}

# Where the coordinator counts on our heartbeats. While it holds our JoinGroup it does not.
BEATING: Final = frozenset({ClassicState.REVOKING, ClassicState.SYNCING, ClassicState.RECONCILING, ClassicState.STABLE})
# Where a group has us, or is about to.
MEMBER: Final = BEATING | {ClassicState.JOINING}


def checked(now: ClassicState, then: ClassicState) -> ClassicState:
    """The next state; a move that the table does not have is a defect of ours."""
    if then not in TRANSITIONS[now]:
        raise AssertionError(f"classic membership: no move from {now.value} to {then.value}")
    return then
