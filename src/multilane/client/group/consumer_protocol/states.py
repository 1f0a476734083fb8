"""The states of a member under the consumer protocol, and the moves between them.

Thread: none (pure).

Everything that may change the state is in the table below; `ConsumerMembership` has one method that moves, and it
refuses what the table does not have.

    UNSUBSCRIBED   not a member, and does not want to be one
    JOINING        says epoch 0 until the coordinator answers with another
    RECONCILING    what we own is not what was assigned: partitions are given up or begun with, or names are looked for
    ACKNOWLEDGING  what we own has changed and the coordinator must hear it, at once
    STABLE         nothing to do but heartbeats
    FENCED         the coordinator has given us up: the application loses what it owns, then we join again
    STALE          we have left because the application does not poll; when it does, it loses what it owns
    LEAVING        says epoch -1 (static members: -2) once, and waits for the answer
    FATAL          refused for good; the application was told
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class MemberState(enum.Enum):
    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    FENCED = "fenced"
    STALE = "stale"
    LEAVING = "leaving"
    FATAL = "fatal"


_OUT: Final = frozenset({MemberState.FENCED, MemberState.STALE, MemberState.LEAVING, MemberState.FATAL})

TRANSITIONS: Final[Mapping[MemberState, frozenset[MemberState]]] = {
    MemberState.UNSUBSCRIBED: frozenset({MemberState.JOINING}),
    MemberState.JOINING: _OUT | {MemberState.UNSUBSCRIBED, MemberState.RECONCILING, MemberState.STABLE},
    MemberState.RECONCILING: _OUT | {MemberState.ACKNOWLEDGING, MemberState.STABLE},
    MemberState.ACKNOWLEDGING: _OUT | {MemberState.RECONCILING},
    MemberState.STABLE: _OUT | {MemberState.RECONCILING},
    MemberState.FENCED: frozenset({MemberState.JOINING, MemberState.UNSUBSCRIBED}),
    MemberState.STALE: frozenset({MemberState.JOINING, MemberState.UNSUBSCRIBED}),
    MemberState.LEAVING: frozenset({MemberState.UNSUBSCRIBED}),
    MemberState.FATAL: frozenset({MemberState.UNSUBSCRIBED}),
}

MEMBER: Final = frozenset(
    {MemberState.RECONCILING, MemberState.ACKNOWLEDGING, MemberState.STABLE}
)  # the coordinator knows us
BEATING: Final = MEMBER | {MemberState.JOINING}  # heartbeats go out
