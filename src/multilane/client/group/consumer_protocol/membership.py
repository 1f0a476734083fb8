"""One member of a group under the consumer protocol (KIP-848).

Thread: none (pure state machine); owned by the network thread, one per consumer.

The coordinator assigns partitions by topic id in its answers to heartbeats. Owned partitions that are no longer
assigned are released first (a REVOKED step) and acknowledged at once; then new partitions are started (an ASSIGNED
step) and acknowledged. Partitions that stay assigned never stop. Unknown topic ids are looked up while the other
partitions proceed. Heartbeats continue all the while.

Owns the state (`states.py`) and the member's id and epoch; `reconciler.py` has the partitions. Never calls the
application, and never releases a partition before the application has: of a fenced or stale member it stays in `owned`
until the LOST step is done, though `identity` is None from that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from multilane.client.group.consumer_protocol.classic_check import ClassicCheck
from multilane.client.group.consumer_protocol.heartbeat_timer import HeartbeatTimer, heartbeat_to
from multilane.client.group.consumer_protocol.names import TopicIds
from multilane.client.group.consumer_protocol.reconciler import ReconcileOutcome, Reconciler
from multilane.client.group.consumer_protocol.reconciliation import TargetAssignment, read_target
from multilane.client.group.consumer_protocol.refusals import HeartbeatError, meaning, refusal, version_refusal
from multilane.client.group.consumer_protocol.states import (
    MEMBER,
    REBALANCING,
    SENDS_HEARTBEATS,
    TRANSITIONS,
    MemberState,
)
from multilane.client.group.consumer_protocol.wording import Wording
from multilane.client.group.membership import Coordinators, Identity, Subscription, warn_of_silence
from multilane.client.net.requests import NEVER, NOTHING, Poll, UnsentRequest
from multilane.errors import (
    AuthenticationError,
    InstanceFenced,
    InstanceInUse,
    MultilaneError,
    UnsupportedVersion,
    WireError,
)
from multilane.logs import logger
from multilane.wire.compose_members import JOIN_EPOCH

if TYPE_CHECKING:
    from multilane.client.group.membership import MemberListeners, MemberPolicy, Pulse
    from multilane.types import NodeId, TopicPartition

log = logger(__name__)

PROTOCOL: Final = "consumer"
_STALE_CHECK_SECONDS: Final = 1.0  # seconds between checks whether a stale member's application polls again


class ConsumerMembership:
    """`unsupported` is called instead of `listeners.failed` when the brokers do not offer this protocol: the owner may
    use the classic one, or raise the error. `topic_ids` finds assigned topics; the metadata implements it."""

    def __init__(
        self,
        policy: MemberPolicy,
        pulse: Pulse,
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
        self._pulse = pulse
        self._unsupported = unsupported
        self._member_id = str(uuid4())
        self._epoch = JOIN_EPOCH
        self._wording = Wording(policy, self._group)
        self._heartbeat_timer = HeartbeatTimer(policy.backoff)
        self._check = ClassicCheck(self._group, coordinators, policy.backoff, self._on_classic_group, listeners.failed)
        self._reconciler = Reconciler(listeners, topic_ids, policy.group.max_poll_interval)
        self._node: NodeId | None = None  # the last coordinator
        self._refusal: MultilaneError | None = None  # the reason for FATAL
        self._on_released: Callable[[MultilaneError], None] | None = None  # called once everything is released
        self._leave_callbacks: list[Callable[[], None]] = []
        self._rejoin_after_leaving = False  # subscribed while leaving
        self._may_be_known = False  # the coordinator may know this member since it joined

    # --- what others see ---------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity | None:
        if self.state not in MEMBER:
            return None
        return Identity(self._group, self._member_id, self._epoch, self._policy.group.group_instance_id, PROTOCOL)

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
        return self._heartbeat_timer.fenced_after(session)

    @property
    def topics_to_watch(self) -> frozenset[str]:
        """None: the coordinator assigns topic ids, which are looked up as they arrive."""
        return frozenset()

    # --- what others ask ---------------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        changed = subscription != self._wording.subscription
        self._wording.subscription = subscription
        if self.state is MemberState.UNSUBSCRIBED:
            self._join()
        elif self.state is MemberState.LEAVING:
            self._rejoin_after_leaving = True
        elif self.refusal is not None:
            self._listeners.failed(self.refusal)
        elif changed and self.state in SENDS_HEARTBEATS:
            self._heartbeat_timer.is_urgent = True

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
        elif self.state in SENDS_HEARTBEATS and self._may_be_known:
            self._leave_callbacks.append(left)
            self._heartbeat_timer.start_over()
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
            self._refuse(error, now)
        else:
            self._fence(now)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        if self.state is MemberState.LEAVING:
            return self._poll_leaving(now)
        limit = self._policy.group.max_poll_interval
        if self.state in SENDS_HEARTBEATS and self._pulse.expire(now, limit):
            return self._go_stale(now)
        patience = limit - self._pulse.idle(now)
        self._advance(now)
        if self.state in SENDS_HEARTBEATS:
            return self._poll_beating(patience, now)
        return Poll(wait=_STALE_CHECK_SECONDS) if self.state is MemberState.STALE else NOTHING

    def _poll_beating(self, patience: float, now: float) -> Poll:
        """`patience`: seconds that the application may still go without a poll."""
        node = self._coordinators.of(self._group)
        if node is None:
            return Poll(wait=patience)
        check = self._check if self.state is MemberState.JOINING and not self._check.is_clear else None
        wait = (
            self._heartbeat_timer.wait(now) if check is None else max(self._heartbeat_timer.wait(now), check.wait(now))
        )
        if wait > 0:
            return Poll(wait=min(wait, patience))
        return Poll((self._heartbeat(node, now) if check is None else check.ask(node),), patience)

    def _poll_leaving(self, now: float) -> Poll:
        if self._heartbeat_timer.wait(now) == NEVER:
            return NOTHING
        node = self._coordinators.of(self._group)
        if node is None:
            error = self._coordinators.last_error(self._group)
            if error is None:
                return NOTHING  # the lookup is in progress, and close() waits with a deadline
            log.warning("group %s: left without notifying the coordinator, which is unknown: %s", self._group, error)
            self._finish_leaving()
            return self.poll(now) if self.state is MemberState.JOINING else NOTHING
        conversation = self._heartbeat_timer.sent(now)

        def answered(*_: object) -> None:
            if self._heartbeat_timer.is_current(conversation):
                self._finish_leaving()

        return Poll((heartbeat_to(node, self._wording.leave_heartbeat(self._member_id), answered, answered),))

    def _go_stale(self, now: float) -> Poll:
        warn_of_silence(self._policy, self._pulse.idle(now))
        self._listeners.observer.count("group.stale", group=self._group)
        node = self._coordinators.of(self._group) if self._may_be_known else None
        self._heartbeat_timer.start_over()
        self._to(MemberState.STALE)
        if node is None:
            return Poll(wait=_STALE_CHECK_SECONDS)

        def ignored(*_: object) -> None: ...  # whether it arrived or not, the next request joins

        leave_heartbeat = heartbeat_to(node, self._wording.leave_heartbeat(self._member_id), ignored, ignored)
        return Poll((leave_heartbeat,), _STALE_CHECK_SECONDS)

    def _heartbeat(self, node: NodeId, now: float) -> UnsentRequest:
        if node != self._node:
            self._wording.start_over()
            self._node = node
        subscription = self._wording.subscription
        owned = self._reconciler.report_owned() if self._reconciler.must_acknowledge or self._wording.is_full else None
        heartbeat = self._wording.heartbeat(self._member_id, self._epoch, owned)
        self._may_be_known = True
        conversation = self._heartbeat_timer.sent(now)

        def on_response(response: Any, now: float) -> None:
            if self._heartbeat_timer.is_current(conversation):
                self._on_response(node, subscription, response, now)

        def on_failure(error: MultilaneError, now: float) -> None:
            if self._heartbeat_timer.is_current(conversation):
                self._on_failure(node, error, now)

        return heartbeat_to(node, heartbeat, on_response, on_failure)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _on_response(self, node: NodeId, subscription: Subscription, response: Any, now: float) -> None:
        code = int(response.error_code)
        if code:
            self._on_error(node, code, response.error_message, now)
            return
        try:
            epoch, target = self._read(response)
        except WireError as error:
            log.warning("group %s: ignoring an answer to a heartbeat: %s", self._group, error)
            self._retry(now)
            return
        self._heartbeat_timer.answered(response.heartbeat_interval.total_seconds())
        if self.state is MemberState.JOINING:
            self._heartbeat_timer.joined(now)
        self._wording.acknowledged(subscription)
        self._member_id = response.member_id or self._member_id
        self._epoch = epoch
        if target is None and self.state is MemberState.JOINING:
            log.warning("group %s: the coordinator sent no assignment, not even an empty one", self._group)
            self._wording.start_over()  # a complete heartbeat is answered with an assignment
        is_acknowledged = self.state is MemberState.ACKNOWLEDGING and not self._reconciler.must_acknowledge
        if self._reconciler.set_target(target, now) or is_acknowledged:
            if self.state is not MemberState.RECONCILING:
                self._to(MemberState.RECONCILING)
        elif self.state is MemberState.JOINING:
            self._to(MemberState.STABLE)
        self._advance(now)
        if not self.owned:
            self._heartbeat_timer.unassigned(now)

    def _read(self, response: Any) -> tuple[int, TargetAssignment | None]:
        epoch = int(response.member_epoch)
        if epoch <= JOIN_EPOCH or epoch < self._epoch:
            raise WireError(f"the coordinator answered epoch {self._epoch} with epoch {epoch}")
        return epoch, None if response.assignment is None else read_target(response.assignment)

    def _on_error(self, node: NodeId, code: int, text: str | None, now: float) -> None:
        match meaning(code, self._epoch):
            case HeartbeatError.FENCED:
                log.warning("group %s: %s is no longer a member: error code %d", self._group, self._member_id, code)
                self._fence(now)
            case HeartbeatError.UNSUPPORTED:
                self._not_offered(refusal(code, text, self._policy), now)
            case HeartbeatError.FINAL:
                self._refuse(refusal(code, text, self._policy), now)
            case HeartbeatError.REPORT:
                self._listeners.failed(refusal(code, text, self._policy))
                self._retry(now)
            case HeartbeatError.FIND_COORDINATOR:
                self._coordinators.forget(self._group, node)
                self._retry(now)
            case HeartbeatError.BACK_OFF:
                self._retry(now)

    def _on_failure(self, node: NodeId, error: MultilaneError, now: float) -> None:
        if isinstance(error, UnsupportedVersion):
            self._not_offered(version_refusal(self._wording.subscription, self._policy), now)
        elif error.retriable or isinstance(error, AuthenticationError):
            if not error.retriable:
                self._listeners.failed(error)
            self._coordinators.forget(self._group, node)
            self._retry(now)
        else:
            self._refuse(error, now)

    def _on_classic_group(self, error: MultilaneError, now: float) -> None:
        if self.state is MemberState.JOINING:
            self._not_offered(error, now)

    def _not_offered(self, error: MultilaneError, now: float) -> None:
        no_other = self._wording.subscription.regex is not None  # the classic protocol has no server-side patterns
        self._refuse(error, now, None if no_other else self._unsupported)

    def _retry(self, now: float) -> None:
        self._wording.start_over()
        self._reconciler.must_acknowledge |= self.state is MemberState.ACKNOWLEDGING
        self._heartbeat_timer.failed(now)
        self._start_check()

    # --- transitions -------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        """Joins with epoch 0. Nothing is owned at this point."""
        self._epoch = JOIN_EPOCH
        self._may_be_known = False
        self._reconciler.clear()
        self._wording.start_over()
        self._heartbeat_timer.is_urgent = True
        self._start_check()
        self._to(MemberState.JOINING)

    def _start_check(self) -> None:
        """With group.protocol=consumer a group is converted without a check, as in Kafka's client."""
        self._check.start_over()
        self._check.is_clear = self._policy.group.group_protocol != "auto"

    def _finish_leaving(self) -> None:
        self._to(MemberState.UNSUBSCRIBED)
        self._heartbeat_timer.start_over()
        callbacks, self._leave_callbacks = self._leave_callbacks, []
        if self._rejoin_after_leaving:
            self._rejoin_after_leaving = False
            self._join()
        for left in callbacks:
            left()

    def _fence(self, now: float) -> None:
        self._listeners.observer.count("group.fenced", group=self._group)
        self._heartbeat_timer.fenced(now)
        self._to(MemberState.FENCED)
        self._advance(now)

    def _refuse(
        self, error: MultilaneError, now: float, on_released: Callable[[MultilaneError], None] | None = None
    ) -> None:
        self._refusal, self._on_released = error, on_released
        self._heartbeat_timer.start_over()
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
        return self._pulse.idle(now) < self._policy.group.max_poll_interval

    def _reconcile(self) -> None:
        outcome = self._reconciler.advance()
        self._heartbeat_timer.is_urgent |= self._reconciler.must_acknowledge
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
        log.debug("group %s: %s, epoch %d: %s", self._group, self._member_id, self._epoch, state.value)
        self.state = state
