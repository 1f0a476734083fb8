"""The states of a run of a backfill, as its driver sees it, and the moves between them.

Thread: none (pure).

`BackfillDriver` alone changes the state. Spark restarts tasks that die: the run does not change its state for them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class BackfillState(enum.Enum):
    STARTING = "starting"
    """Spark has the job, and no task has begun."""
    RUNNING = "running"
    """At least one task has begun."""
    DRAINING = "draining"
    """The run was stopped, or has failed for good: its tasks stop in order."""
    CANCELLING = "cancelling"
    """The job was cancelled: its tasks did not stop in time, or none had begun."""
    ENDED = "ended"
    """The job has ended by itself: the progress tells whether that was the end of the work."""
    STOPPED = "stopped"
    """The job has ended after a stop or a failure."""


TRANSITIONS: Final[Mapping[BackfillState, frozenset[BackfillState]]] = {
    BackfillState.STARTING: frozenset({BackfillState.RUNNING, BackfillState.DRAINING, BackfillState.ENDED}),
    BackfillState.RUNNING: frozenset({BackfillState.DRAINING, BackfillState.ENDED}),
    BackfillState.DRAINING: frozenset({BackfillState.CANCELLING, BackfillState.STOPPED}),
    BackfillState.CANCELLING: frozenset({BackfillState.STOPPED}),
    # One signal may reach Spark before the stop reaches the driver.
    BackfillState.ENDED: frozenset({BackfillState.STOPPED}),
    BackfillState.STOPPED: frozenset(),
}

# Tasks get work.
AT_WORK: Final = frozenset({BackfillState.STARTING, BackfillState.RUNNING})
# The job has ended.
OVER: Final = frozenset({BackfillState.ENDED, BackfillState.STOPPED})
