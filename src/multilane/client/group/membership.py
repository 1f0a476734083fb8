"""What the two group protocols have in common: the types shared by a membership, its consumer and its coordinator.

Thread: network, which owns memberships. Only `PollActivity` and `MemberStatus` have two sides: one thread writes,
the other reads.

A membership is a request manager. It never calls the application: it sends a `RebalanceStep` to the application thread
as an event and continues when `step_done` returns the ticket. At most one step is open. In a step the application
releases partitions (REVOKED, LOST) or starts them (ASSIGNED).
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from multilane.client.net.requests import RequestManager
from multilane.errors import printable
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.types import NodeId, TopicPartition

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster
    from multilane.client.net.request_state import RequestBackoff
    from multilane.config.group import GroupConfig
    from multilane.errors import MultilaneError

log = logger(__name__)

# A heartbeat is sent after this part of the interval: changes arrive sooner, and a short delay does no harm.
HEARTBEAT_FRACTION: Final = 0.75
# A member that has just joined and has no partitions yet sends heartbeats more often: others are releasing its
# partitions, and partitions without a reader wait for that heartbeat.
UNASSIGNED_INTERVAL: Final = 0.5
UNASSIGNED_FOR: Final = 10.0


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics that a member wants to read. A `regex` (RE2J) is matched by the broker, under KIP-848 only; a Python
    pattern is matched by us and arrives here as topics."""

    topics: frozenset[str] = frozenset()
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """A member as its coordinator knows it. `epoch` is the generation (classic) or the member epoch (consumer)."""

    group: str
    member_id: str
    epoch: int
    instance_id: str | None
    protocol: str


class Change(enum.Enum):
    REVOKED = "revoked"  # owned until the step is done: there is time to commit
    LOST = "lost"  # another member may own them already
    ASSIGNED = "assigned"


@dataclass(frozen=True, slots=True)
class RebalanceStep:
    """What the application must do before the membership continues. The group waits for it until `deadline`."""

    ticket: int
    change: Change
    partitions: frozenset[TopicPartition]
    deadline: float


class MemberStatus:
    """The member's present identity in the group, or why it has none. Written by the network thread, read by the
    application: one reference each. Without an identity no records may be handed out: others may own the partitions.
    The same holds from `fenced_after` on: by then the coordinator may have expelled a member whose heartbeats did not
    arrive."""

    __slots__ = ("fenced_after", "identity", "refusal")

    def __init__(self) -> None:
        self.fenced_after = inf
        self.identity: Identity | None = None
        self.refusal: MultilaneError | None = None

    def holds(self, now: float) -> bool:
        """False for a process that was suspended too long: its group may have expelled it without its knowledge."""
        return self.identity is not None and now <= self.fenced_after


class PollActivity:
    """When the application last polled. Written by its thread, read by the network thread.

    The lock orders a new poll and an expiry: a poll that begins after `expire` finds no identity, and a consumer does
    not expire while it polls.
    """

    __slots__ = ("_lock", "_member_status", "is_polling", "last")

    def __init__(self, now: float, member_status: MemberStatus | None = None) -> None:
        self._lock = threading.Lock()
        self._member_status = member_status
        self.last = now
        self.is_polling = False  # a consumer that waits in poll() is alive, however long it takes

    def idle(self, now: float) -> float:
        return 0.0 if self.is_polling else now - self.last

    def note(self, now: float, *, is_polling: bool) -> float:
        """The application enters or leaves poll(). Returns the seconds since its last call."""
        with self._lock:
            idle = self.idle(now)
            self.last, self.is_polling = now, is_polling
            return idle

    def expire(self, now: float, limit: float) -> bool:
        """Whether the application has not polled for `limit` seconds. If so, its identity ends at this moment."""
        with self._lock:
            if self.idle(now) < limit:
                return False
            if self._member_status is not None:
                self._member_status.identity = None
            return True


class Coordinators(Protocol):
    """The coordinators of groups. `of` starts the lookup of an unknown one."""

    def of(self, group: str) -> NodeId | None: ...

    def forget(self, group: str, node: NodeId) -> None:
        """This broker is not, or no longer, the coordinator, or cannot be reached."""
        ...

    def last_error(self, group: str) -> MultilaneError | None:
        """The error of the last lookup; None if there was none."""
        ...


@dataclass(frozen=True, slots=True)
class MemberPolicy:
    group: GroupConfig
    backoff: RequestBackoff
    rack: str | None
    name: str  # of the consumer; names its own connections


@dataclass(frozen=True, slots=True)
class MemberListeners:
    """Callbacks of a membership; all are called on the network thread, none blocks."""

    cluster: Callable[[], Cluster]
    refresh: Callable[[], None]  # the cluster metadata is old
    step: Callable[[RebalanceStep], None]
    failed: Callable[[MultilaneError], None]  # the application's next poll raises it
    close_connections: Callable[[str], None]  # the connections of this owner are no longer needed
    observer: Observer = NO_OBSERVER


class Membership(RequestManager, Protocol):
    """One member of one group. `owned` holds the partitions that the application has been given and not released."""

    @property
    def identity(self) -> Identity | None:
        """None while the coordinator knows no such member."""
        ...

    @property
    def owned(self) -> frozenset[TopicPartition]: ...

    @property
    def is_rebalancing(self) -> bool:
        """It joins, releases partitions or starts them, or is about to."""
        ...

    @property
    def refusal(self) -> MultilaneError | None:
        """Why the group refuses this member; only leaving and subscribing again may change that."""
        ...

    def fenced_after(self, session: float | None) -> float:
        """When the coordinator may have expelled this member: one session after the last answered heartbeat was sent.
        `session` is the timeout reported by the broker, in seconds, if known."""
        ...

    @property
    def topics_to_watch(self) -> frozenset[str]:
        """Topics that the cluster metadata must contain besides those subscribed to."""
        ...

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Joins the group, or changes the subscription of the member."""
        ...

    def rejoin(self, reason: str, now: float) -> None:
        """Requests a rebalance (`enforce_rebalance`); does nothing where the broker assigns."""
        ...

    def step_done(self, ticket: int, now: float) -> None:
        """The application has completed a step; an old ticket is ignored."""
        ...

    def leave(self, left: Callable[[], None], now: float) -> None:
        """Leaves the group. The application has released its partitions already. `left` is called once: when the
        coordinator has answered or cannot answer, or at once if no request is needed."""
        ...

    def fenced(self, error: MultilaneError, now: float) -> None:
        """A commit failed with an error that means that this member is no longer in the group."""
        ...


def warn_of_silence(policy: MemberPolicy, idle: float) -> None:
    """The application has not polled for `idle` seconds."""
    log.warning(
        "group %s: the application has not polled for %.1f s, longer than max.poll.interval.ms (%d). %s leaves and "
        "rejoins at the next poll. Process fewer records per poll (max.poll.records), or raise the interval",
        printable(policy.group.group_id or "", 100),
        idle,
        round(policy.group.max_poll_interval * 1000),
        policy.name,
    )
