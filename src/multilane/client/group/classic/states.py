"""The states of a classic member and the transitions between them: everything that affects them is in this table.

Thread: none (pure).

    OUTSIDE      not a member and not joining
    JOINING      JoinGroup is to be sent, or the group waits for its other members; the coordinator may be unknown yet
    REVOKING     the application releases the partitions that it must not own during JoinGroup (eager: all)
    SYNCING      a member of this generation that waits for its assignment (and makes it, as leader)
    RECONCILING  the application releases partitions that are no longer assigned and starts new ones
    STABLE       only heartbeats
    AWAY         the application has not polled for max.poll.interval.ms: the member left, unknown to the application
    LOSING       no longer a member; the application releases everything, then the member rejoins
    LEAVING      LeaveGroup is in flight
    FAILED       the group refuses this member, or another replaced it; only leaving ends this state

At most one step of the application is open, and only in REVOKING, RECONCILING, AWAY and LOSING. LOSING waits for a step
that was open when the membership was lost; the remaining partitions are lost in a step of their own.
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

# The coordinator expects heartbeats in these states. It does not while it holds the member's JoinGroup.
SENDS_HEARTBEATS: Final = frozenset(
    {ClassicState.REVOKING, ClassicState.SYNCING, ClassicState.RECONCILING, ClassicState.STABLE}
)
# A member, or about to become one.
MEMBER: Final = SENDS_HEARTBEATS | {ClassicState.JOINING}

# On its way to STABLE.
REBALANCING: Final = (MEMBER - {ClassicState.STABLE}) | {ClassicState.LOSING}


def checked(now: ClassicState, then: ClassicState) -> ClassicState:
    """The next state. A transition that is not in the table is a bug."""
    if then not in TRANSITIONS[now]:
        raise AssertionError(f"classic membership: no transition from {now.value} to {then.value}")
    return then
