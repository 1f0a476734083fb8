"""The states of a member under the consumer protocol, and the transitions between them.

Thread: none (pure).

All transitions are in the table below; `ConsumerMembership` has one method that changes the state, and it refuses any
other.

    UNSUBSCRIBED   not a member and not joining
    JOINING        sends epoch 0 until the coordinator answers with another
    RECONCILING    owned and assigned partitions differ: some are released or started, or topic names are looked up
    ACKNOWLEDGING  the owned partitions have changed, and the coordinator must learn it at once
    STABLE         only heartbeats
    FENCED         removed by the coordinator: the application loses its partitions, then the member rejoins
    STALE          left because the application does not poll; when it does, it loses its partitions
    LEAVING        sends epoch -1 (static members: -2) once and waits for the answer
    FATAL          refused for good; the application got the error
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
)  # the coordinator knows this member
SENDS_HEARTBEATS: Final = MEMBER | {MemberState.JOINING}  # heartbeats are sent
REBALANCING: Final = frozenset(
    {MemberState.JOINING, MemberState.RECONCILING, MemberState.ACKNOWLEDGING, MemberState.FENCED}
)  # on its way to STABLE
