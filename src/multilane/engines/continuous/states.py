"""The states of a member of a run on Spark, the moves between them, and what the supervisor does for a member.

Thread: none (pure).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class SparkMemberState(enum.Enum):
    STARTING = "starting"
    """Spark has its job; the member has not connected yet, or has disconnected."""
    READY = "ready"
    """It runs in a slot, has found the application, and waits for permission to serve."""
    SERVING = "serving"
    """It is a member of its groups."""
    WAITING = "waiting"
    """Its job ended unexpectedly; it is restarted when it is due."""
    DRAINING = "draining"
    """It was asked to shut down cleanly, or its job was cancelled."""
    ENDED = "ended"
    """It has ended and is not restarted."""


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


class MemberAction(enum.Enum):
    """What the supervisor does for a member."""

    START = "start"
    SERVE = "serve"
    STOP = "stop"  # cleanly
    CANCEL = "cancel"  # it has not begun: at most it waits for a slot
