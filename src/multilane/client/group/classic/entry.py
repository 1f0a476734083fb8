"""A member's entry into a generation: JoinGroup with its subscription, SyncGroup with or for an assignment.

Thread: none (pure); belongs to a membership.

Owns the requests and answers of the present rebalance, and the last assignment, which sticky assignors need even if it
was released since. Computes the assignment if this member leads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from multilane.client.group.classic.joining import SHOWN, JoinClaim, Joined, protocols, read_join, read_sync
from multilane.client.group.classic.leading import Leader
from multilane.client.group.classic.member_requests import COORDINATOR_WAIT
from multilane.client.group.membership import Subscription
from multilane.client.net.requests import NEVER
from multilane.errors import printable
from multilane.logs import logger
from multilane.wire.messages import ApiKey
from multilane.wire.subscription import NO_GENERATION

if TYPE_CHECKING:
    from multilane.client.group.assignors import Assignor
    from multilane.client.group.classic.member_requests import MemberRequests
    from multilane.client.group.classic.owned_partitions import PartitionSet
    from multilane.client.group.membership import MemberListeners
    from multilane.client.net.requests import UnsentRequest

log = logger(__name__)


class GroupEntry:
    def __init__(
        self, requests: MemberRequests, listeners: MemberListeners, assignors: Sequence[Assignor], rack: str | None
    ) -> None:
        self.leader = Leader(listeners)
        self.joined_with: Subscription | None = None  # in the last JoinGroup
        self._member_requests = requests
        self._listeners = listeners
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._rack = rack
        self._joined: Joined | None = None
        self._last: PartitionSet = frozenset()
        self._last_generation = NO_GENERATION
        self._mismatches = 0  # consecutive assignments with unsubscribed partitions

    @property
    def is_mismatched(self) -> bool:
        """The last assignment was made for another subscription; rejoining may help."""
        return self._mismatches == 1

    @property
    def leads(self) -> bool:
        return self._joined is not None and self._joined.leads

    def begin(self) -> None:
        """Another rebalance begins. A leader keeps watching its topics until the next leader is known."""
        self._joined = None

    def end(self) -> None:
        self._joined = None
        self.leader.retire()

    def forget(self) -> None:
        self.end()
        self._last, self._last_generation = frozenset(), NO_GENERATION

    def join(self, subscription: Subscription, owned: PartitionSet, reason: str) -> UnsentRequest | None:
        """JoinGroup; None while the coordinator is unknown. Raises GroupError if an assignor fails."""
        claim = JoinClaim(
            subscription.topics, owned, self._member_requests.generation, self._last, self._last_generation, self._rack
        )
        request = self._member_requests.join(protocols(self._assignors.values(), claim), reason)
        if request is not None:
            self.joined_with = subscription
        return request

    def take_join(self, response: Any, now: float) -> int:
        """Accepts a JoinGroup answer and returns its generation. Raises FrameError or BrokerError if it is invalid."""
        what = self._member_requests.what(ApiKey.JOIN_GROUP)
        joined = read_join(response, tuple(self._assignors), what)
        self._member_requests.member_id, self._member_requests.generation = joined.member_id, joined.generation
        self._joined = joined
        self.leader.retire()
        if joined.leads:
            self.leader.appoint(joined.members, now)
        log.info(
            "%s: member %s of generation %d%s, assignor %s",
            what,
            printable(joined.member_id, SHOWN),
            joined.generation,
            f", leader of {len(joined.members)}" if joined.leads else "",
            joined.protocol,
        )
        return joined.generation

    def generation_went_back(self, generation: int) -> bool:
        """Whether the group has forgotten the generation of our assignment. It may forget generations in between: a
        coordinator stores only those that have an assignment."""
        if generation >= self._last_generation:
            return False
        log.warning(
            "%s: generation %d follows %d; the coordinator has lost part of the group's history, and other members may "
            "own our partitions",
            self._member_requests.what(ApiKey.JOIN_GROUP),
            generation,
            self._last_generation,
        )
        return True

    def sync(self, requests: list[UnsentRequest], now: float) -> float:
        """Adds SyncGroup when it is due. Returns the seconds to wait. Raises GroupError if the assignor fails."""
        wait = max(self._member_requests.entry_wait(now), self.leader.wait(now) if self.leads else 0.0)
        if wait > 0:
            return wait
        joined = self._current_join()
        request = self._member_requests.sync(joined.protocol, self._lead(joined) if joined.leads else {})
        if request is None:
            return COORDINATOR_WAIT
        requests.append(request)
        return NEVER

    def _lead(self, joined: Joined) -> dict[str, bytes]:
        if joined.skip_assignment:  # KIP-814: a static leader came back, and all members keep their partitions
            self.leader.remember()
            return {}
        return self.leader.divide(self._assignors[joined.protocol])

    def take_sync(self, response: Any, subscription: Subscription) -> PartitionSet:
        """The new assignment. Raises FrameError or BrokerError if the answer is invalid."""
        assigned = read_sync(response, self._current_join().protocol, self._member_requests.what(ApiKey.SYNC_GROUP))
        self._last, self._last_generation = (
            self._subscribed_only(assigned, subscription),
            self._member_requests.generation,
        )
        return self._last

    def _current_join(self) -> Joined:
        if self._joined is None:
            raise AssertionError("SyncGroup without a previous JoinGroup")
        return self._joined

    def _subscribed_only(self, assigned: PartitionSet, subscription: Subscription) -> PartitionSet:
        """Removes partitions that are not subscribed to. The member then rejoins: a static member that came back with
        another subscription gets its old assignment, because no leader has read the new subscription. It rejoins only
        once: a leader that assigns unsubscribed partitions would do so again, and the group would never become stable.

        Partitions that are missing from our cluster metadata are kept: the leader has seen them, and we will too.
        """
        fitting = frozenset(p for p in assigned if p.topic in subscription.topics and p.partition >= 0)
        odd = assigned - fitting
        self._mismatches = self._mismatches + 1 if odd else 0
        if odd:
            shown = ", ".join(printable(str(p), SHOWN) for p in sorted(odd)[:5])
            log.warning("ignoring %d assigned partitions that are not subscribed to (%s)", len(odd), shown)
        cluster = self._listeners.cluster()
        if any(cluster.leadership(p) is None for p in fitting):
            self._listeners.refresh()
        return fitting
