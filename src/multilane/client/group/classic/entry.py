"""How a member enters a generation: JoinGroup with what it wants and holds, SyncGroup with or for an assignment.

Thread: none (pure); belongs to a membership.

Owns what was said and heard in the rebalance under way, and the last assignment, which sticky assignors want to know
also when it was given up since. Leads where we are told to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from multilane.client.group.classic.dialogue import LOOK_AGAIN
from multilane.client.group.classic.joining import SHOWN, JoinClaim, Joined, protocols, read_join, read_sync
from multilane.client.group.classic.leading import Leader
from multilane.client.group.membership import Subscription
from multilane.client.net.requests import NEVER
from multilane.errors import printable
from multilane.logs import logger
from multilane.wire.messages import ApiKey
from multilane.wire.subscription import NO_GENERATION

if TYPE_CHECKING:
    from multilane.client.group.assignors import Assignor
    from multilane.client.group.classic.dialogue import Dialogue
    from multilane.client.group.classic.holdings import Partitions
    from multilane.client.group.membership import MemberListeners
    from multilane.client.net.requests import UnsentRequest

log = logger(__name__)


class GroupEntry:
    def __init__(
        self, talk: Dialogue, listeners: MemberListeners, assignors: Sequence[Assignor], rack: str | None
    ) -> None:
        self.leader = Leader(listeners)
        self.told: Subscription | None = None  # in the last JoinGroup
        self._talk = talk
        self._listeners = listeners
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._rack = rack
        self._joined: Joined | None = None
        self._last: Partitions = frozenset()
        self._last_generation = NO_GENERATION
        self._misfits = 0  # assignments in a row that held what we do not want

    @property
    def is_misunderstood(self) -> bool:
        """The last assignment was made for another subscription; joining again may help."""
        return self._misfits == 1

    @property
    def leads(self) -> bool:
        return self._joined is not None and self._joined.leads

    def begin(self) -> None:
        """Another rebalance: who leads will be said anew. What a leader watches is kept in view until then."""
        self._joined = None

    def end(self) -> None:
        self._joined = None
        self.leader.retire()

    def forget(self) -> None:
        self.end()
        self._last, self._last_generation = frozenset(), NO_GENERATION

    def join(self, subscription: Subscription, owned: Partitions, reason: str) -> UnsentRequest | None:
        """JoinGroup; None while the coordinator is unknown. GroupError when an assignor fails us."""
        claim = JoinClaim(
            subscription.topics, owned, self._talk.generation, self._last, self._last_generation, self._rack
        )
        request = self._talk.join(protocols(self._assignors.values(), claim), reason)
        if request is not None:
            self.told = subscription
        return request

    def take_join(self, response: Any, now: float) -> int:
        """The generation that an answer tells; a member of it afterwards. FrameError or BrokerError when it is none
        for us."""
        what = self._talk.what(ApiKey.JOIN_GROUP)
        joined = read_join(response, tuple(self._assignors), what)
        self._talk.member_id, self._talk.generation = joined.member_id, joined.generation
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

    def has_gone_back(self, generation: int) -> bool:
        """Whether the group has forgotten the generation in which we were given what we hold. One in between may be
        forgotten: a coordinator writes down only those that have an assignment."""
        if generation >= self._last_generation:
            return False
        log.warning(
            "%s: generation %d came after %d; the coordinator has lost part of the group's past, and others may have "
            "our partitions",
            self._talk.what(ApiKey.JOIN_GROUP),
            generation,
            self._last_generation,
        )
        return True

    def sync(self, requests: list[UnsentRequest], now: float) -> float:
        """Add SyncGroup when it is time for it; seconds until it may be. GroupError when the assignor fails us."""
        wait = max(self._talk.entry_wait(now), self.leader.wait(now) if self.leads else 0.0)
        if wait > 0:
            return wait
        joined = self._known()
        request = self._talk.sync(joined.protocol, self._lead(joined) if joined.leads else {})
        if request is None:
            return LOOK_AGAIN
        requests.append(request)
        return NEVER

    def _lead(self, joined: Joined) -> dict[str, bytes]:
        if joined.skip_assignment:  # KIP-814: a static leader came back, and everyone keeps what it has
            self.leader.remember()
            return {}
        return self.leader.divide(self._assignors[joined.protocol])

    def take_sync(self, response: Any, subscription: Subscription) -> Partitions:
        """What is ours from now on. FrameError or BrokerError when the answer is none for us."""
        assigned = read_sync(response, self._known().protocol, self._talk.what(ApiKey.SYNC_GROUP))
        self._last, self._last_generation = self._plausible(assigned, subscription), self._talk.generation
        return self._last

    def _known(self) -> Joined:
        if self._joined is None:
            raise AssertionError("SyncGroup without a JoinGroup before it")
        return self._joined

    def _plausible(self, assigned: Partitions, subscription: Subscription) -> Partitions:
        """Without what we do not want. It is said to the group by joining again: a static member that came back with
        another subscription is given what it had, and nobody has read what it wants. But only once: a leader that gives
        what nobody asked for would do so again, and the group would never come to rest.

        Partitions that our picture of the cluster does not have are kept: the leader has seen them, and we shall too.
        """
        fitting = frozenset(p for p in assigned if p.topic in subscription.topics and p.partition >= 0)
        odd = assigned - fitting
        self._misfits = self._misfits + 1 if odd else 0
        if odd:
            shown = ", ".join(printable(str(p), SHOWN) for p in sorted(odd)[:5])
            log.warning("%d assigned partitions are not subscribed to and left alone (%s)", len(odd), shown)
        cluster = self._listeners.cluster()
        if any(cluster.leadership(p) is None for p in fitting):
            self._listeners.refresh()
        return fitting
