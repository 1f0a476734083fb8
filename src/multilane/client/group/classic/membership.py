"""One member of a classic group: the state machine between the application's steps and the coordinator's answers.

Thread: none (pure state machine); owned by the network thread, one per consumer that subscribes.

Owns the subscription and the state (`states.py` has the table). `OwnedPartitions` knows what the application owns,
`ClassicSteps` which partitions a step is about, `MemberRequests` sends requests to the coordinator, `GroupEntry` runs a
rebalance. Never calls the application: it asks for a step and continues when that is done. Heartbeats continue
meanwhile; the coordinator decides who is a member.

Eager: the application releases everything before JoinGroup. Cooperative: JoinGroup lists the owned partitions, and
after SyncGroup only those no longer assigned are released; then the member rejoins, so that others can have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from multilane.client.group.assignors import all_cooperative
from multilane.client.group.classic.entry import GroupEntry
from multilane.client.group.classic.member_requests import COORDINATOR_WAIT, MemberRequests
from multilane.client.group.classic.owned_partitions import OwnedPartitions
from multilane.client.group.classic.states import MEMBER, REBALANCING, SENDS_HEARTBEATS, ClassicState, checked
from multilane.client.group.classic.steps import ClassicSteps
from multilane.client.group.classic.verdicts import ErrorVerdict, advised, is_fenced_instance, judge, refused_pattern
from multilane.client.group.membership import UNASSIGNED_FOR, Change, Identity, Subscription, warn_of_silence
from multilane.client.net.requests import NEVER, Poll, UnsentRequest
from multilane.errors import BrokerError, GroupError, MultilaneError, WireError
from multilane.logs import logger
from multilane.wire.messages import ApiKey
from multilane.wire.subscription import NO_GENERATION

if TYPE_CHECKING:
    from multilane.client.group.assignors import Assignor
    from multilane.client.group.membership import Coordinators, MemberListeners, MemberPolicy, PollActivity
    from multilane.types import TopicPartition

log = logger(__name__)

_BROKEN_ANSWERS: Final = 4  # consecutive ones before the membership fails
_TICK: Final = 0.001


class ClassicMembership:
    def __init__(
        self,
        policy: MemberPolicy,
        poll_activity: PollActivity,
        coordinators: Coordinators,
        listeners: MemberListeners,
        assignors: Sequence[Assignor],
    ) -> None:
        if not assignors:
            raise ValueError("a classic membership needs at least one assignor")
        self.state = ClassicState.OUTSIDE
        self._policy = policy
        self._poll_activity = poll_activity
        self._listeners = listeners
        self._cooperative = all_cooperative(assignors)
        self._member_requests = MemberRequests(policy, coordinators, self)
        self.fenced_after = self._member_requests.fenced_after
        self._entry = GroupEntry(self._member_requests, listeners, assignors, policy.rack)
        self._owned_partitions = OwnedPartitions(listeners.step)
        limit = policy.group.max_poll_interval
        self._steps = ClassicSteps(self._owned_partitions, limit, is_cooperative=self._cooperative)
        self._subscription: Subscription | None = None
        self._rejoin: str | None = None  # the reason for a due rebalance
        self._reason = ""
        self._failure: MultilaneError | None = None
        self._unassigned_until = 0.0
        self._leave_callbacks: list[Callable[[], None]] = []

    # --- what others see ---------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity | None:
        member = self._member_requests
        if self.state not in MEMBER or member.generation == NO_GENERATION:
            return None
        return Identity(member.group, member.member_id, member.generation, member.instance_id, "classic")

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._owned_partitions.owned

    @property
    def is_rebalancing(self) -> bool:
        return self.state in REBALANCING or self._rejoin is not None

    @property
    def refusal(self) -> MultilaneError | None:
        return self._failure

    @property
    def is_leader(self) -> bool:
        return self._entry.leads

    @property
    def topics_to_watch(self) -> frozenset[str]:
        """Topics that the cluster metadata must contain: our own; as leader, those of all members."""
        return self._wanted.topics | self._entry.leader.topics

    @property
    def _wanted(self) -> Subscription:
        return self._subscription or Subscription()

    # --- calls of the consumer ---------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Joins, or changes the subscription. A member may have no topics (a pattern without a match yet)."""
        self._subscription = subscription
        if self.state is ClassicState.OUTSIDE:
            self._to(ClassicState.JOINING)
            self._reason = "the consumer subscribes"
            self._unassigned_until = now + UNASSIGNED_FOR

    def rejoin(self, reason: str, now: float) -> None:
        if self.state in (ClassicState.STABLE, ClassicState.RECONCILING, ClassicState.SYNCING):
            self._rejoin = reason

    def step_done(self, ticket: int, now: float) -> None:
        step = self._owned_partitions.done(ticket)
        if step is None:
            return
        if self.state is ClassicState.REVOKING:
            self._revoke_or_join(now)
        elif self.state is ClassicState.RECONCILING:
            if step.change is Change.ASSIGNED:
                self._to(ClassicState.STABLE)
            else:
                self._steps.assign(now)
        elif self.state is ClassicState.LOSING:
            self._lose_partitions(now)

    def leave(self, left: Callable[[], None], now: float) -> None:
        self._subscription = None
        if self.state is ClassicState.OUTSIDE:
            left()
            return
        self._leave_callbacks.append(left)
        if self.state is ClassicState.LEAVING:
            return
        self._owned_partitions.drop()
        self._to(ClassicState.LEAVING)
        is_sent = self._member_requests.leave("the consumer unsubscribes or closes", self._on_left)
        self._end_membership()
        self._close_idle_connection()
        if not is_sent:
            self._on_left(now)

    def fenced(self, error: MultilaneError, now: float) -> None:
        """A join may have overtaken the commit, whose error then is about an older generation: a heartbeat at once
        shows whether this is still a member. While a JoinGroup is in flight its answer shows it."""
        if self.state in SENDS_HEARTBEATS:
            self._member_requests.heartbeat_now(now)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        # First: a member that cannot send it is out at once, and may rejoin.
        leaves = self._member_requests.send_leaves(now)
        waits = [self._watch_application(now)]
        if self.state is ClassicState.STABLE:
            waits.append(self._check_for_rejoin(now))
        self._close_idle_connection()
        requests: list[UnsentRequest] = []
        if self.state is ClassicState.JOINING:
            waits.append(self._ask_to_join(requests, now))
        elif self.state is ClassicState.SYNCING:
            waits.append(self._ask_to_sync(requests, now))
        if self.state in SENDS_HEARTBEATS:
            if self._awaits_partitions(now):
                self._member_requests.heartbeat_soon(now)
            waits.append(self._member_requests.heartbeat(requests, now))
        leaves += self._member_requests.send_leaves(now)  # of an application that has just stopped polling
        waits.append(self._member_requests.watch_rebalance(now, is_free=not self.owned))
        return Poll((*leaves, *requests), min(waits))

    def _awaits_partitions(self, now: float) -> bool:
        """Just joined, cooperatively, without partitions: others are releasing what the next rebalance assigns."""
        is_unassigned = self.state is ClassicState.STABLE and not self.owned
        return self._cooperative and is_unassigned and now < self._unassigned_until

    def _watch_application(self, now: float) -> float:
        limit = self._policy.group.max_poll_interval
        if self.state is ClassicState.AWAY:
            if self._poll_activity.idle(now) >= limit:
                return COORDINATOR_WAIT
            self._lose(now)
        elif self.state in MEMBER and self._member_requests.member_id:
            if self._poll_activity.expire(now, limit):
                self._go_away(now)
                return COORDINATOR_WAIT
            if not self._poll_activity.is_polling:
                return max(_TICK, self._poll_activity.last + limit - now)
        return NEVER

    def _go_away(self, now: float) -> None:
        warn_of_silence(self._policy, self._poll_activity.idle(now))
        self._member_requests.leave("the application did not poll within max.poll.interval.ms", lambda _: None)
        self._end_membership()
        self._to(ClassicState.AWAY)

    def _check_for_rejoin(self, now: float) -> float:
        if self._rejoin is None and self._subscription != self._entry.joined_with:
            self._rejoin = "the subscription changed"
        if self._rejoin is None and self.is_leader:
            self._rejoin = self._entry.leader.rejoin_reason(now)
        if self._rejoin is not None:
            self._rebalance(self._rejoin, now)
            return NEVER
        return self._entry.leader.next_check(now) if self.is_leader else NEVER

    def _close_idle_connection(self) -> None:
        """Closes the connection when the rebalance is over or an abandoned request blocks it. Never called from within
        an answer: answers arrive on this connection."""
        member = self._member_requests
        needed = self.state in (ClassicState.JOINING, ClassicState.REVOKING, ClassicState.SYNCING)
        needed = needed or (self.state is ClassicState.RECONCILING and self._rejoin is not None)
        if member.has_connection and (member.is_connection_stuck or not needed):
            member.has_connection = member.is_connection_stuck = False
            self._listeners.close_connections(member.owner)

    def _ask_to_join(self, requests: list[UnsentRequest], now: float) -> float:
        wait = self._member_requests.entry_wait(now)
        if wait > 0:
            return wait
        if self._steps.surplus(self._wanted.topics):  # the subscription has changed in the meantime
            self._rebalance(self._reason, now)
            return NEVER
        if self._wanted.regex is not None:
            self._fail(refused_pattern(self._policy.group), now)
            return NEVER
        try:
            request = self._entry.join(self._wanted, self.owned, self._reason)
        except GroupError as error:
            self._fail(error, now)
            return NEVER
        if request is None:
            return COORDINATOR_WAIT
        requests.append(request)
        return NEVER

    def _ask_to_sync(self, requests: list[UnsentRequest], now: float) -> float:
        try:
            return self._entry.sync(requests, now)
        except GroupError as error:
            self._fail(error, now)
            return NEVER

    # --- answers of the coordinator ----------------------------------------------------------------------------------

    def on_joined(self, response: Any, now: float) -> None:
        try:
            generation = self._entry.take_join(response, now)
        except WireError as error:
            self._on_unreadable(error, now)
        except BrokerError as error:
            self.on_error(ApiKey.JOIN_GROUP, error, now)
        else:
            if self.owned and self._entry.generation_went_back(generation):
                self._lose(now, keep_id=True)
                return
            self._to(ClassicState.SYNCING)
            self._member_requests.postpone_heartbeat(now)

    def on_synced(self, response: Any, now: float) -> None:
        try:
            assigned = self._entry.take_sync(response, self._wanted)
        except WireError as error:
            self._on_unreadable(error, now)
        except BrokerError as error:
            self.on_error(ApiKey.SYNC_GROUP, error, now)
        else:
            self._member_requests.syncing.state.succeeded()
            self._listeners.observer.count("group.rebalances")
            self._steps.group_waits_no_longer()
            if self._entry.is_mismatched:
                self._rejoin = self._rejoin or "the assignment was made for another subscription"
            self._to(ClassicState.RECONCILING)
            if self._steps.reconcile(assigned, now):
                self._rejoin = self._rejoin or "partitions were revoked"

    def on_interrupted(self, now: float) -> None:
        self._rebalance("the answer to SyncGroup was lost", now)

    def on_error(self, api: ApiKey, error: MultilaneError, now: float) -> None:
        if api is ApiKey.HEARTBEAT and self.state not in SENDS_HEARTBEATS:
            return  # the answer to the JoinGroup in flight decides
        verdict = judge(error)
        if verdict is ErrorVerdict.LOGIN:
            self._listeners.failed(error)
        elif verdict is ErrorVerdict.FATAL:
            self._fail(advised(error, self._policy.group), now, leave=not is_fenced_instance(error))
        elif verdict is ErrorVerdict.REBALANCE:
            self._on_rebalance(api, now)
        else:
            log.warning("%s; rejoining", error)
            self._listeners.observer.count("group.fenced")
            self._lose(now, keep_id=verdict is ErrorVerdict.STALE)

    def _on_rebalance(self, api: ApiKey, now: float) -> None:
        if api is ApiKey.SYNC_GROUP:
            self._rebalance("the group began another rebalance", now)
        elif self.state in (ClassicState.STABLE, ClassicState.RECONCILING):
            self._steps.group_waits(now)
            self._rejoin = self._rejoin or "the group is rebalancing"

    def _on_unreadable(self, error: MultilaneError, now: float) -> None:
        """An invalid answer: tolerated a few times, then the membership fails."""
        entry = self._member_requests.syncing
        entry.state.failed(now)
        if entry.state.failures >= _BROKEN_ANSWERS:
            self._fail(GroupError(f"{error}; is there a member in the group that is not a consumer?"), now)
            return
        log.warning("%s; rejoining", error)
        if self.state is ClassicState.SYNCING:
            self._rebalance("an answer was invalid", now)

    # --- transitions -------------------------------------------------------------------------------------------------

    def _to(self, state: ClassicState) -> None:
        self.state = checked(self.state, state)

    def _rebalance(self, reason: str, now: float) -> None:
        self._rejoin, self._reason = None, reason
        self._entry.begin()
        topics = self._wanted.topics
        if self._steps.surplus(topics):
            self._to(ClassicState.REVOKING)
            self._steps.revoke_surplus(topics, now)
        elif self.state is not ClassicState.JOINING:
            self._to(ClassicState.JOINING)

    def _revoke_or_join(self, now: float) -> None:
        topics = self._wanted.topics
        if self._steps.surplus(topics):  # the subscription changed once more
            self._steps.revoke_surplus(topics, now)
        else:
            self._steps.group_waits_no_longer()
            self._to(ClassicState.JOINING)

    def _lose(self, now: float, *, keep_id: bool = False) -> None:
        self._end_membership(keep_id=keep_id)
        self._reason = "membership was lost"
        self._to(ClassicState.LOSING)
        self._lose_partitions(now)

    def _lose_partitions(self, now: float) -> None:
        if self._owned_partitions.step is not None:
            return
        lost = self._steps.lose(now)
        if lost:
            self._listeners.observer.count("group.lost", lost)
        else:
            self._to(ClassicState.JOINING if self._failure is None else ClassicState.FAILED)

    def _fail(self, error: MultilaneError, now: float, *, leave: bool = True) -> None:
        self._failure = error
        if leave:
            self._member_requests.leave("this member has failed", lambda _: None)
        self._lose(now)
        self._listeners.failed(error)

    def _end_membership(self, *, keep_id: bool = False) -> None:
        self._member_requests.abandon()
        self._member_requests.forget_member(keep_id=keep_id)
        self._entry.end()
        self._rejoin = None
        self._steps.group_waits_no_longer()

    def _on_left(self, now: float) -> None:
        self._to(ClassicState.OUTSIDE)
        self._failure = None
        self._entry.forget()
        left, self._leave_callbacks = self._leave_callbacks, []
        for callback in left:
            callback()
        if self.state is ClassicState.OUTSIDE and self._subscription is not None:
            self.subscribe(self._subscription, now)
