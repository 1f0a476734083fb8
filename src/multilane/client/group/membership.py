"""What the two group protocols have in common: the words between a membership, its consumer and its coordinator.

Thread: network, which owns memberships. Only `Pulse` and `MemberStanding` have two sides: one thread writes, the other
reads.

A membership is a request manager. It never calls the application: it tells a `RebalanceStep`, which travels to the
application thread as an event, and goes on when `step_done` brings the ticket back. At most one step is open. The
partitions of a step are the application's to give up (REVOKED, LOST) or to begin with (ASSIGNED).
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.types import NodeId, TopicPartition

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster
    from multilane.client.net.request_state import RequestBackoff
    from multilane.client.net.requests import Poll
    from multilane.config.group import GroupConfig
    from multilane.errors import MultilaneError


EARLY: Final = 0.75  # of a heartbeat interval: what changed is heard of sooner, and a slow moment does no harm
# Whoever has just joined and has nothing yet asks more often: others are giving up what will be his, and what nobody
# reads waits for that very heartbeat.
HUNGRY_PACE: Final = 0.5
HUNGRY_FOR: Final = 10.0


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants to read. A `regex` (RE2J) is matched by the broker, under KIP-848 only; a Python pattern
    is matched by us and arrives here as topics."""

    topics: frozenset[str] = frozenset()
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a member is to its coordinator. `epoch` is the generation (classic) or the member epoch (consumer)."""

    group: str
    member_id: str
    epoch: int
    instance_id: str | None
    protocol: str


class Change(enum.Enum):
    REVOKED = "revoked"  # still ours until the step is done: there is time to commit
    LOST = "lost"  # someone else may have them already
    ASSIGNED = "assigned"


@dataclass(frozen=True, slots=True)
class RebalanceStep:
    """What the application must do before the membership goes on. `deadline` is when the group stops waiting for us."""

    ticket: int
    change: Change
    partitions: frozenset[TopicPartition]
    deadline: float


class MemberStanding:
    """Who we are to the group at present, or why we are nobody. Written by the network thread, read by the application:
    one reference each. Without an identity nothing may be handed out: others may have our partitions. The same holds
    from `fenced_after` on: by then the coordinator may have expelled us, because our heartbeats did not reach it."""

    __slots__ = ("fenced_after", "identity", "refusal")

    def __init__(self) -> None:
        self.fenced_after = inf
        self.identity: Identity | None = None
        self.refusal: MultilaneError | None = None

    def holds(self, now: float) -> bool:
        """A process that was stopped has lost it before anybody says so: its group may have expelled it meanwhile."""
        return self.identity is not None and now <= self.fenced_after


class Pulse:
    """When the application was last heard of. Written by its thread, read by the network thread.

    The lock makes two things one: that the application polls again, and that it has been away for too long. Whichever
    comes first, a poll that begins after `expire` finds no standing, and none expires while it polls.
    """

    __slots__ = ("_lock", "_standing", "is_polling", "last")

    def __init__(self, now: float, standing: MemberStanding | None = None) -> None:
        self._lock = threading.Lock()
        self._standing = standing
        self.last = now
        self.is_polling = False  # whoever waits in poll() is there, however long it takes

    def idle(self, now: float) -> float:
        return 0.0 if self.is_polling else now - self.last

    def beat(self, now: float, *, is_polling: bool) -> float:
        """The application enters poll() or leaves it. Returns for how long it has been away."""
        with self._lock:
            idle = self.idle(now)
            self.last, self.is_polling = now, is_polling
            return idle

    def expire(self, now: float, limit: float) -> bool:
        """Whether the application has not polled for `limit` seconds: then its standing ends at this moment."""
        with self._lock:
            if self.idle(now) < limit:
                return False
            if self._standing is not None:
                self._standing.identity = None
            return True


class Coordinators(Protocol):
    """Where groups are coordinated. Asking makes an unknown one be looked for."""

    def of(self, group: str) -> NodeId | None: ...

    def forget(self, group: str, node: NodeId) -> None:
        """This broker is not, or no longer, the coordinator, or cannot be reached."""
        ...

    def why(self, group: str) -> MultilaneError | None:
        """Why the last look-up of an unknown one failed; None while nothing went wrong."""
        ...


@dataclass(frozen=True, slots=True)
class MemberPolicy:
    group: GroupConfig
    backoff: RequestBackoff
    rack: str | None
    name: str  # of the consumer: names connections of its own


@dataclass(frozen=True, slots=True)
class MemberListeners:
    """Whom a membership tells and asks; all on the network thread, none blocks."""

    cluster: Callable[[], Cluster]
    refresh: Callable[[], None]  # the picture of the cluster is old
    step: Callable[[RebalanceStep], None]
    failed: Callable[[MultilaneError], None]  # the application's next poll raises it
    hang_up: Callable[[str], None]  # the connections of this owner are not needed any more
    observer: Observer = NO_OBSERVER


class Membership(Protocol):
    """One member of one group. `owned` is what the application has been given and has not given up."""

    @property
    def identity(self) -> Identity | None:
        """None while the coordinator knows no such member."""
        ...

    @property
    def owned(self) -> frozenset[TopicPartition]: ...

    @property
    def refusal(self) -> MultilaneError | None:
        """Why the group will not have us; only to leave and to subscribe again may change that."""
        ...

    def fenced_after(self, session: float | None) -> float:
        """When the coordinator may have expelled us: a session after the last heartbeat that it answered was sent.
        `session` is what the broker has told, in seconds, if it has."""
        ...

    @property
    def topics_to_watch(self) -> frozenset[str]:
        """Topics that must be in the picture of the cluster besides those subscribed to."""
        ...

    def poll(self, now: float) -> Poll: ...

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Join, or tell the group of another subscription."""
        ...

    def rejoin(self, reason: str, now: float) -> None:
        """Ask for a rebalance (`enforce_rebalance`); nothing to do where the broker assigns."""
        ...

    def step_done(self, ticket: int, now: float) -> None:
        """The application is through with a step; an old ticket means nothing."""
        ...

    def leave(self, left: Callable[[], None], now: float) -> None:
        """Give up membership. The application has given up its partitions already. `left` is called once: when the
        coordinator has answered or cannot, or at once where nothing is to be said."""
        ...

    def fenced(self, error: MultilaneError, now: float) -> None:
        """A commit was answered with an error that means this member is no longer one."""
        ...
