"""One member of a group under the consumer protocol (KIP-848).

Thread: none (pure state machine); owned by the network thread, one per consumer.

The coordinator assigns, by topic id, in the answers to heartbeats. What is owned and no longer assigned is given up
first (a REVOKED step) and acknowledged at once, then what is new is begun with (an ASSIGNED step) and acknowledged;
partitions in both never stop. Topics whose names are not known yet are looked for, and the rest goes ahead. Heartbeats
go on all the while.

Owns the state (`states.py`) and the member's id and epoch; `reconciler.py` has the partitions. Never calls the
application, and never gives up a partition that the application has not given up: fenced or gone stale, it stays in
`owned` until the LOST step is done, though `identity` is None from that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from multilane.client.group.consumer_protocol.classic_check import ClassicCheck
from multilane.client.group.consumer_protocol.heartbeat_timer import HeartbeatTimer, heartbeat_to
from multilane.client.group.consumer_protocol.names import TopicIds
from multilane.client.group.consumer_protocol.reconciler import ReconcileOutcome, Reconciler
from multilane.client.group.consumer_protocol.reconciliation import Target, read_target
from multilane.client.group.consumer_protocol.refusals import HeartbeatError, meaning, refusal, version_refusal
from multilane.client.group.consumer_protocol.states import BEATING, MEMBER, TRANSITIONS, MemberState
from multilane.client.group.consumer_protocol.wording import Wording
from multilane.client.group.membership import Coordinators, Identity, Subscription
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
_LOOK_FOR_APPLICATION: Final = 1.0  # seconds between looks whether a stale member's application polls again


class ConsumerMembership:
    """`unsupported` is told instead of `listeners.failed` when the brokers do not offer this protocol: whoever made
    this member may use the classic one, or raise what was told. `topic_ids` finds the topics that are assigned; the
    metadata does."""

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
        self._check = ClassicCheck(self._group, coordinators, policy.backoff, self._is_classic)
        self._parts = Reconciler(listeners, topic_ids, policy.group.max_poll_interval)
        self._node: NodeId | None = None  # whom we last spoke to
        self._refusal: MultilaneError | None = None  # why we are FATAL
        self._last_word: Callable[[MultilaneError], None] | None = None  # told why when all is given up
        self._left: list[Callable[[], None]] = []
        self._wants_back = False  # subscribed while leaving
        self._is_known = False  # the coordinator may have heard of us since we joined

    # --- what others see ---------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity | None:
        if self.state not in MEMBER:
            return None
        return Identity(self._group, self._member_id, self._epoch, self._policy.group.group_instance_id, PROTOCOL)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._parts.owned

    @property
    def refusal(self) -> MultilaneError | None:
        return self._refusal if self.state is MemberState.FATAL and self._last_word is None else None

    def fenced_after(self, session: float | None) -> float:
        return self._heartbeat_timer.fenced_after(session)

    @property
    def topics_to_watch(self) -> frozenset[str]:
        """None: the coordinator says what is ours, by ids that are looked up as they come."""
        return frozenset()

    # --- what others ask ---------------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        changed = subscription != self._wording.subscription
        self._wording.subscription = subscription
        if self.state is MemberState.UNSUBSCRIBED:
            self._join()
        elif self.state is MemberState.LEAVING:
            self._wants_back = True
        elif self.refusal is not None:
            self._listeners.failed(self.refusal)
        elif changed and self.state in BEATING:
            self._heartbeat_timer.is_urgent = True

    def rejoin(self, reason: str, now: float) -> None:
        log.debug("group %s: the broker assigns, so there is nothing to do to rebalance (%s)", self._group, reason)

    def step_done(self, ticket: int, now: float) -> None:
        if self._parts.done(ticket):
            self._advance(now)

    def leave(self, left: Callable[[], None], now: float) -> None:
        self._parts.clear()
        self._wants_back = False
        if self.state is MemberState.LEAVING:
            self._left.append(left)
        elif self.state in BEATING and self._is_known:
            self._left.append(left)
            self._heartbeat_timer.start_over()
            self._to(MemberState.LEAVING)
        else:
            self._last_word = None
            if self.state is not MemberState.UNSUBSCRIBED:
                self._to(MemberState.UNSUBSCRIBED)
            left()

    def fenced(self, error: MultilaneError, now: float) -> None:
        if self.state not in MEMBER:
            return
        log.warning("group %s: a commit was refused (%s)", self._group, error)
        if isinstance(error, InstanceFenced | InstanceInUse):
            self._refuse(error, now)
        else:
            self._fence(now)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        if self.state is MemberState.LEAVING:
            return self._poll_leaving(now)
        limit = self._policy.group.max_poll_interval
        if self.state in BEATING and self._pulse.expire(now, limit):
            return self._go_stale(now)
        patience = limit - self._pulse.idle(now)
        self._advance(now)
        if self.state in BEATING:
            return self._poll_beating(patience, now)
        return Poll(wait=_LOOK_FOR_APPLICATION) if self.state is MemberState.STALE else NOTHING

    def _poll_beating(self, patience: float, now: float) -> Poll:
        """`patience` is for how long the application may still go without a poll."""
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
            error = self._coordinators.why(self._group)
            if error is None:
                return NOTHING  # it is being looked for, and whoever closes waits for us with a deadline
            log.warning("group %s: left without telling the coordinator, which is unknown: %s", self._group, error)
            self._gone()
            return self.poll(now) if self.state is MemberState.JOINING else NOTHING
        talk = self._heartbeat_timer.sent(now)

        def answered(*_: object) -> None:
            if self._heartbeat_timer.is_current(talk):
                self._gone()

        return Poll((heartbeat_to(node, self._wording.farewell(self._member_id), answered, answered),))

    def _go_stale(self, now: float) -> Poll:
        log.warning(
            "group %s: the application has not polled for %.1f s, which is more than max.poll.interval.ms; %s leaves, "
            "and joins again at the next poll. Handle fewer records per poll (max.poll.records), or raise the interval",
            self._group,
            self._pulse.idle(now),
            self._policy.name,
        )
        self._listeners.observer.count("group.stale", group=self._group)
        node = self._coordinators.of(self._group) if self._is_known else None
        self._heartbeat_timer.start_over()
        self._to(MemberState.STALE)
        if node is None:
            return Poll(wait=_LOOK_FOR_APPLICATION)

        def ignored(*_: object) -> None:
            return None  # whether it came through or not, the next word is to join

        farewell = heartbeat_to(node, self._wording.farewell(self._member_id), ignored, ignored)
        return Poll((farewell,), _LOOK_FOR_APPLICATION)

    def _heartbeat(self, node: NodeId, now: float) -> UnsentRequest:
        if node != self._node:
            self._wording.unheard()
            self._node = node
        subscription = self._wording.subscription
        owned = self._parts.tell() if self._parts.must_acknowledge or self._wording.is_full else None
        said = self._wording.heartbeat(self._member_id, self._epoch, owned)
        self._is_known = True
        talk = self._heartbeat_timer.sent(now)

        def on_response(response: Any, now: float) -> None:
            if self._heartbeat_timer.is_current(talk):
                self._on_response(node, subscription, response, now)

        def on_failure(error: MultilaneError, now: float) -> None:
            if self._heartbeat_timer.is_current(talk):
                self._on_failure(node, error, now)

        return heartbeat_to(node, said, on_response, on_failure)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _on_response(self, node: NodeId, subscription: Subscription, response: Any, now: float) -> None:
        code = int(response.error_code)
        if code:
            self._on_error(node, code, response.error_message, now)
            return
        try:
            epoch, target = self._read(response)
        except WireError as error:
            log.warning("group %s: an answer to a heartbeat is ignored: %s", self._group, error)
            self._try_again(now)
            return
        self._heartbeat_timer.answered(response.heartbeat_interval.total_seconds())
        if self.state is MemberState.JOINING:
            self._heartbeat_timer.joined(now)
        self._wording.heard(subscription)
        self._member_id = response.member_id or self._member_id
        self._epoch = epoch
        if target is None and self.state is MemberState.JOINING:
            log.warning("group %s: the coordinator has assigned nothing, not even an empty list", self._group)
            self._wording.unheard()  # a heartbeat that says everything is answered with an assignment
        is_heard = self.state is MemberState.ACKNOWLEDGING and not self._parts.must_acknowledge
        if self._parts.aim(target, now) or is_heard:
            if self.state is not MemberState.RECONCILING:
                self._to(MemberState.RECONCILING)
        elif self.state is MemberState.JOINING:
            self._to(MemberState.STABLE)
        self._advance(now)
        if not self.owned:
            self._heartbeat_timer.empty_handed(now)

    def _read(self, response: Any) -> tuple[int, Target | None]:
        epoch = int(response.member_epoch)
        if epoch <= JOIN_EPOCH or epoch < self._epoch:
            raise WireError(f"the coordinator answers epoch {epoch} to epoch {self._epoch}")
        return epoch, None if response.assignment is None else read_target(response.assignment)

    def _on_error(self, node: NodeId, code: int, text: str | None, now: float) -> None:
        match meaning(code, self._epoch):
            case HeartbeatError.FENCED:
                log.warning("group %s: %s is not a member any more: code %d", self._group, self._member_id, code)
                self._fence(now)
            case HeartbeatError.UNSUPPORTED:
                self._not_offered(refusal(code, text, self._policy), now)
            case HeartbeatError.FINAL:
                self._refuse(refusal(code, text, self._policy), now)
            case HeartbeatError.TELL:
                self._listeners.failed(refusal(code, text, self._policy))
                self._try_again(now)
            case HeartbeatError.LOOK_AGAIN:
                self._coordinators.forget(self._group, node)
                self._try_again(now)
            case HeartbeatError.BACK_OFF:
                self._try_again(now)

    def _on_failure(self, node: NodeId, error: MultilaneError, now: float) -> None:
        if isinstance(error, UnsupportedVersion):
            self._not_offered(version_refusal(self._wording.subscription, self._policy), now)
        elif error.retriable or isinstance(error, AuthenticationError):
            if not error.retriable:
                self._listeners.failed(error)
            self._coordinators.forget(self._group, node)
            self._try_again(now)
        else:
            self._refuse(error, now)

    def _is_classic(self, error: MultilaneError, now: float) -> None:
        if self.state is MemberState.JOINING:
            self._not_offered(error, now)

    def _not_offered(self, error: MultilaneError, now: float) -> None:
        no_other = self._wording.subscription.regex is not None  # has patterns for the broker either
        self._refuse(error, now, None if no_other else self._unsupported)

    def _try_again(self, now: float) -> None:
        self._wording.unheard()
        self._parts.must_acknowledge |= self.state is MemberState.ACKNOWLEDGING
        self._heartbeat_timer.failed(now)
        self._start_check()

    # --- moves -------------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        """Say epoch 0. Nothing is owned at this point."""
        self._epoch = JOIN_EPOCH
        self._is_known = False
        self._parts.clear()
        self._wording.unheard()
        self._heartbeat_timer.is_urgent = True
        self._start_check()
        self._to(MemberState.JOINING)

    def _start_check(self) -> None:
        """Whoever asked for KIP-848 converts groups, as Kafka does."""
        self._check.start_over()
        self._check.is_clear = self._policy.group.group_protocol != "auto"

    def _gone(self) -> None:
        self._to(MemberState.UNSUBSCRIBED)
        self._heartbeat_timer.start_over()
        callbacks, self._left = self._left, []
        if self._wants_back:
            self._wants_back = False
            self._join()
        for left in callbacks:
            left()

    def _fence(self, now: float) -> None:
        self._listeners.observer.count("group.fenced", group=self._group)
        self._heartbeat_timer.fenced(now)
        self._to(MemberState.FENCED)
        self._advance(now)

    def _refuse(
        self, error: MultilaneError, now: float, last_word: Callable[[MultilaneError], None] | None = None
    ) -> None:
        self._refusal, self._last_word = error, last_word
        self._heartbeat_timer.start_over()
        self._to(MemberState.FATAL)
        if last_word is None:
            self._listeners.failed(error)
        self._advance(now)

    def _advance(self, now: float) -> None:
        """Do what can be done without waiting for anybody."""
        if self.state in (MemberState.RECONCILING, MemberState.ACKNOWLEDGING):
            self._reconcile()
        elif self._parts.in_step:
            return
        elif self.state is MemberState.FENCED or (self.state is MemberState.STALE and self._application_polls(now)):
            if not self._parts.lose(now):
                self._join()
        elif self.state is MemberState.FATAL and not self._parts.lose(now) and self._last_word and self._refusal:
            tell, self._last_word = self._last_word, None
            tell(self._refusal)

    def _application_polls(self, now: float) -> bool:
        return self._pulse.idle(now) < self._policy.group.max_poll_interval

    def _reconcile(self) -> None:
        outcome = self._parts.advance()
        self._heartbeat_timer.is_urgent |= self._parts.must_acknowledge
        if outcome is ReconcileOutcome.IN_STEP:
            if self.state is MemberState.ACKNOWLEDGING:
                self._to(MemberState.RECONCILING)
        elif self.state is MemberState.RECONCILING:
            if self._parts.must_acknowledge:
                self._to(MemberState.ACKNOWLEDGING)
            elif outcome is ReconcileOutcome.COMPLETE:
                self._to(MemberState.STABLE)

    def _to(self, state: MemberState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"group {self._group}: no move from {self.state.value} to {state.value}")
        log.debug("group %s: %s, epoch %d: %s", self._group, self._member_id, self._epoch, state.value)
        self.state = state
