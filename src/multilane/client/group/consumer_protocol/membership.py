"""One member of a group under the consumer protocol (KIP-848).

Thread: none (pure state machine); owned by the network thread, one per consumer.

The coordinator assigns partitions by topic id in its answers to heartbeats. Owned partitions that are no longer
assigned are released first (a REVOKED step) and acknowledged at once; then new partitions are started (an ASSIGNED
step) and acknowledged. Partitions that stay assigned never stop. Unknown topic ids are looked up while the other
partitions proceed. Heartbeats continue all the while.

Owns the state (`states.py`). `heartbeat_exchange.py` has the member's id and epoch, and asks the coordinator;
`reconciler.py` has the partitions. Never calls the application, and never releases a partition before the application
has: of a fenced or stale member it stays in `owned` until the LOST step is done, though `identity` is None from that
moment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from multilane.client.group.consumer_protocol.heartbeat_exchange import HeartbeatExchange
from multilane.client.group.consumer_protocol.names import TopicIds
from multilane.client.group.consumer_protocol.reconciler import ReconcileOutcome, Reconciler
from multilane.client.group.consumer_protocol.reconciliation import TargetAssignment
from multilane.client.group.consumer_protocol.states import (
    MEMBER,
    REBALANCING,
    SENDS_HEARTBEATS,
    TRANSITIONS,
    MemberState,
)
from multilane.client.group.membership import Coordinators, Identity, Subscription, warn_of_silence
from multilane.client.net.requests import NOTHING, Poll
from multilane.errors import InstanceFenced, InstanceInUse, MultilaneError
from multilane.logs import logger

if TYPE_CHECKING:
    from multilane.client.group.membership import MemberListeners, MemberPolicy, PollActivity
    from multilane.types import TopicPartition

log = logger(__name__)

PROTOCOL: Final = "consumer"
_STALE_CHECK_SECONDS: Final = 1.0  # seconds between checks whether a stale member's application polls again


class ConsumerMembership:
    """`unsupported` is called instead of `listeners.failed` when the brokers do not offer this protocol: the owner may
    use the classic one, or raise the error. `topic_ids` finds assigned topics; the metadata implements it."""

    def __init__(
        self,
        policy: MemberPolicy,
        poll_activity: PollActivity,
        coordinators: Coordinators,
        listeners: MemberListeners,
        unsupported: Callable[[MultilaneError], None],
        topic_ids: TopicIds,
    ) -> None:
        self.state = MemberState.UNSUBSCRIBED
        self._group = policy.group.group_id or ""
        self._policy = policy
        self._listeners = listeners
        self._coordinators = coordinators
        self._poll_activity = poll_activity
        self._unsupported = unsupported
        self._exchange = HeartbeatExchange(policy, coordinators, listeners, self)
        self._fields = self._exchange.fields
        self._reconciler = Reconciler(listeners, topic_ids, policy.group.max_poll_interval)
        self._refusal: MultilaneError | None = None  # the reason for FATAL
        self._on_released: Callable[[MultilaneError], None] | None = None  # called once everything is released
        self._leave_callbacks: list[Callable[[], None]] = []
        self._rejoin_after_leaving = False  # subscribed while leaving

    # --- what others see ---------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity | None:
        if self.state not in MEMBER:
            return None
        instance_id = self._policy.group.group_instance_id
        return Identity(self._group, self._exchange.member_id, self._exchange.epoch, instance_id, PROTOCOL)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._reconciler.owned

    @property
    def is_rebalancing(self) -> bool:
        return self.state in REBALANCING

    @property
    def refusal(self) -> MultilaneError | None:
        return self._refusal if self.state is MemberState.FATAL and self._on_released is None else None

    def fenced_after(self, session: float | None) -> float:
        return self._exchange.fenced_after(session)

    @property
    def topics_to_watch(self) -> frozenset[str]:
        """None: the coordinator assigns topic ids, which are looked up as they arrive."""
        return frozenset()

    # --- what others ask ---------------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        changed = subscription != self._fields.subscription
        self._fields.subscription = subscription
        if self.state is MemberState.UNSUBSCRIBED:
            self._join()
        elif self.state is MemberState.LEAVING:
            self._rejoin_after_leaving = True
        elif self.refusal is not None:
            self._listeners.failed(self.refusal)
        elif changed and self.state in SENDS_HEARTBEATS:
            self._exchange.hurry()

    def rejoin(self, reason: str, now: float) -> None:
        log.debug("group %s: the broker assigns; ignoring a request to rebalance (%s)", self._group, reason)

    def step_done(self, ticket: int, now: float) -> None:
        if self._reconciler.done(ticket):
            self._advance(now)

    def leave(self, left: Callable[[], None], now: float) -> None:
        self._reconciler.clear()
        self._rejoin_after_leaving = False
        if self.state is MemberState.LEAVING:
            self._leave_callbacks.append(left)
        elif self.state in SENDS_HEARTBEATS and self._exchange.may_be_known:
            self._leave_callbacks.append(left)
            self._exchange.start_over()
            self._to(MemberState.LEAVING)
        else:
            self._on_released = None
            if self.state is not MemberState.UNSUBSCRIBED:
                self._to(MemberState.UNSUBSCRIBED)
            left()

    def fenced(self, error: MultilaneError, now: float) -> None:
        if self.state not in MEMBER:
            return
        log.warning("group %s: a commit was rejected (%s)", self._group, error)
        if isinstance(error, InstanceFenced | InstanceInUse):
            self.on_refused(error, now)
        else:
            self.on_fenced(now)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        if self.state is MemberState.LEAVING:
            return self._poll_leaving(now)
        limit = self._policy.group.max_poll_interval
        if self.state in SENDS_HEARTBEATS and self._poll_activity.expire(now, limit):
            return self._go_stale(now)
        patience = limit - self._poll_activity.idle(now)
        self._advance(now)
        if self.state in SENDS_HEARTBEATS:
            return self._exchange.next_requests(patience, now)
        return Poll(wait=_STALE_CHECK_SECONDS) if self.state is MemberState.STALE else NOTHING

    def _poll_leaving(self, now: float) -> Poll:
        if self._exchange.is_answer_awaited(now):
            return NOTHING
        node = self._coordinators.of(self._group)
        if node is None:
            error = self._coordinators.last_error(self._group)
            if error is None:
                return NOTHING  # the lookup is in progress, and close() waits with a deadline
            log.warning("group %s: left without notifying the coordinator, which is unknown: %s", self._group, error)
            self._finish_leaving()
            return self.poll(now) if self.state is MemberState.JOINING else NOTHING
        return Poll((self._exchange.leave(node, self._finish_leaving, now),))

    def _go_stale(self, now: float) -> Poll:
        warn_of_silence(self._policy, self._poll_activity.idle(now))
        self._listeners.observer.count("group.stale", group=self._group)
        node = self._coordinators.of(self._group) if self._exchange.may_be_known else None
        self._exchange.start_over()
        self._to(MemberState.STALE)
        if node is None:
            return Poll(wait=_STALE_CHECK_SECONDS)
        return Poll((self._exchange.leave_unanswered(node),), _STALE_CHECK_SECONDS)

    # --- answers -----------------------------------------------------------------------------------------------------

    def owned_to_report(self, *, is_full: bool) -> Mapping[UUID, Collection[int]] | None:
        return self._reconciler.report_owned() if self._reconciler.must_acknowledge or is_full else None

    def on_answer(self, target: TargetAssignment | None, now: float) -> None:
        is_acknowledged = self.state is MemberState.ACKNOWLEDGING and not self._reconciler.must_acknowledge
        if self._reconciler.set_target(target, now) or is_acknowledged:
            if self.state is not MemberState.RECONCILING:
                self._to(MemberState.RECONCILING)
        elif self.state is MemberState.JOINING:
            self._to(MemberState.STABLE)
        self._advance(now)
        if not self.owned:
            self._exchange.unassigned(now)

    def on_interrupted(self) -> None:
        self._reconciler.must_acknowledge |= self.state is MemberState.ACKNOWLEDGING

    def on_classic_group(self, error: MultilaneError, now: float) -> None:
        if self.state is MemberState.JOINING:
            self.on_not_offered(error, now)

    def on_not_offered(self, error: MultilaneError, now: float) -> None:
        no_other = self._fields.subscription.regex is not None  # the classic protocol has no server-side patterns
        self.on_refused(error, now, None if no_other else self._unsupported)

    # --- transitions -------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        """Joins with epoch 0. Nothing is owned at this point."""
        self._reconciler.clear()
        self._exchange.join()
        self._to(MemberState.JOINING)

    def _finish_leaving(self) -> None:
        self._to(MemberState.UNSUBSCRIBED)
        self._exchange.start_over()
        callbacks, self._leave_callbacks = self._leave_callbacks, []
        if self._rejoin_after_leaving:
            self._rejoin_after_leaving = False
            self._join()
        for left in callbacks:
            left()

    def on_fenced(self, now: float) -> None:
        self._listeners.observer.count("group.fenced", group=self._group)
        self._exchange.fenced(now)
        self._to(MemberState.FENCED)
        self._advance(now)

    def on_refused(
        self, error: MultilaneError, now: float, on_released: Callable[[MultilaneError], None] | None = None
    ) -> None:
        self._refusal, self._on_released = error, on_released
        self._exchange.start_over()
        self._to(MemberState.FATAL)
        if on_released is None:
            self._listeners.failed(error)
        self._advance(now)

    def _advance(self, now: float) -> None:
        """Takes the steps that are possible without waiting."""
        if self.state in (MemberState.RECONCILING, MemberState.ACKNOWLEDGING):
            self._reconcile()
        elif self._reconciler.in_step:
            return
        elif self.state is MemberState.FENCED or (self.state is MemberState.STALE and self._application_polls(now)):
            if not self._reconciler.lose(now):
                self._join()
        elif self.state is MemberState.FATAL and not self._reconciler.lose(now) and self._on_released and self._refusal:
            on_released, self._on_released = self._on_released, None
            on_released(self._refusal)

    def _application_polls(self, now: float) -> bool:
        return self._poll_activity.idle(now) < self._policy.group.max_poll_interval

    def _reconcile(self) -> None:
        outcome = self._reconciler.advance()
        if self._reconciler.must_acknowledge:
            self._exchange.hurry()
        if outcome is ReconcileOutcome.IN_STEP:
            if self.state is MemberState.ACKNOWLEDGING:
                self._to(MemberState.RECONCILING)
        elif self.state is MemberState.RECONCILING:
            if self._reconciler.must_acknowledge:
                self._to(MemberState.ACKNOWLEDGING)
            elif outcome is ReconcileOutcome.COMPLETE:
                self._to(MemberState.STABLE)

    def _to(self, state: MemberState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"group {self._group}: no transition from {self.state.value} to {state.value}")
        member_id, epoch = self._exchange.member_id, self._exchange.epoch
        log.debug("group %s: %s, epoch %d: %s", self._group, member_id, epoch, state.value)
        self.state = state
