"""The states of a partition lease and of the query, as the coordinator and the driver see them, and the moves between.

Thread: none (pure).

`RemoteProcessor` alone changes the state of a lease, `QuerySupervisor` that of the query. Partitions are drained when
the group revokes them, or when their topic was deleted and created again.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class LeaseState(enum.Enum):
    FREE = "free"
    """No worker holds the lease, and none processes records of it."""
    GRANTED = "granted"
    """A worker holds the lease; former workers may still process held records."""
    CARRIED = "carried"
    """The lease was returned or has expired, and former workers still process held records."""
    REVOKING = "revoking"
    """Its partitions are drained, and workers still hold the lease or records of it."""
    REVOKED = "revoked"
    """Its partitions were drained, no worker holds any of them, and the lease is never granted again."""


LEASE_TRANSITIONS: Final[Mapping[LeaseState, frozenset[LeaseState]]] = {
    LeaseState.FREE: frozenset({LeaseState.GRANTED, LeaseState.REVOKED}),
    LeaseState.GRANTED: frozenset({LeaseState.FREE, LeaseState.CARRIED, LeaseState.REVOKING}),
    LeaseState.CARRIED: frozenset({LeaseState.FREE, LeaseState.GRANTED, LeaseState.REVOKING}),
    LeaseState.REVOKING: frozenset({LeaseState.REVOKED}),
    LeaseState.REVOKED: frozenset(),
}

# A batch can grant the lease.
GRANTABLE: Final = frozenset({LeaseState.FREE, LeaseState.CARRIED})
# No worker has anything of the lease.
UNUSED: Final = frozenset({LeaseState.FREE, LeaseState.REVOKED})


class QueryState(enum.Enum):
    WAITING = "waiting"
    """No query runs; the next one starts when it is due."""
    RUNNING = "running"
    """Spark runs the query."""
    ENDING = "ending"
    """The coordinator failed or is gone; the query ends, and is restarted."""
    DRAINING = "draining"
    """The run was stopped, and the coordinator leaves its groups cleanly."""
    OVER = "over"
    """The run has ended, cleanly or with a failure."""


QUERY_TRANSITIONS: Final[Mapping[QueryState, frozenset[QueryState]]] = {
    QueryState.WAITING: frozenset({QueryState.RUNNING, QueryState.DRAINING, QueryState.OVER}),
    QueryState.RUNNING: frozenset({QueryState.WAITING, QueryState.ENDING, QueryState.DRAINING, QueryState.OVER}),
    QueryState.ENDING: frozenset({QueryState.WAITING, QueryState.DRAINING, QueryState.OVER}),
    QueryState.DRAINING: frozenset({QueryState.OVER}),
    QueryState.OVER: frozenset(),
}
