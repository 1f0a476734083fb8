"""A member's requests to its coordinator under KIP-848: contents, member id and epoch, and timing.

Thread: none (pure state machine); belongs to the membership that made it, on the network thread.

Owns the member id and the epoch, the coordinator that was asked last, the content of the next heartbeat
(`heartbeat_fields.py`), when it is sent (`heartbeat_timer.py`), and with `group.protocol=auto` the check before joining
(`classic_check.py`). Retriable errors are handled here: the heartbeat is sent again after a while, complete, because it
is unknown whether the one before arrived. The membership (`HeartbeatHandler`) handles everything else. Never knows its
state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID, uuid4

from multilane.client.group.consumer_protocol.classic_check import ClassicCheck
from multilane.client.group.consumer_protocol.heartbeat_fields import HeartbeatFields
from multilane.client.group.consumer_protocol.heartbeat_timer import HeartbeatTimer, heartbeat_to
from multilane.client.group.consumer_protocol.reconciliation import TargetAssignment, read_target
from multilane.client.group.consumer_protocol.refusals import HeartbeatError, meaning, refusal, version_refusal
from multilane.client.net.requests import NEVER, Poll, UnsentRequest
from multilane.errors import AuthenticationError, MultilaneError, UnsupportedVersion, WireError
from multilane.logs import logger
from multilane.wire.compose_members import JOIN_EPOCH

if TYPE_CHECKING:
    from multilane.client.group.membership import Coordinators, MemberListeners, MemberPolicy, Subscription
    from multilane.types import NodeId

log = logger(__name__)


class HeartbeatHandler(Protocol):
    """Receives answers, and errors that are not retried here."""

    def owned_to_report(self, *, is_full: bool) -> Mapping[UUID, Collection[int]] | None:
        """The owned partitions, for the next heartbeat; None: unchanged. `is_full`: the heartbeat is complete."""
        ...

    def on_answer(self, target: TargetAssignment | None, now: float) -> None: ...

    def on_interrupted(self) -> None:
        """A heartbeat has failed and is retried: whether it arrived is unknown."""
        ...

    def on_fenced(self, now: float) -> None: ...

    def on_refused(self, error: MultilaneError, now: float) -> None: ...

    def on_not_offered(self, error: MultilaneError, now: float) -> None:
        """The brokers do not offer this protocol."""
        ...

    def on_classic_group(self, error: MultilaneError, now: float) -> None: ...


class HeartbeatExchange:
    def __init__(
        self, policy: MemberPolicy, coordinators: Coordinators, listeners: MemberListeners, handler: HeartbeatHandler
    ) -> None:
        self.group: Final = policy.group.group_id or ""
        self.member_id = str(uuid4())
        self.epoch = JOIN_EPOCH
        self.may_be_known = False  # the coordinator may know this member since it joined
        self.fields: Final = HeartbeatFields(policy, self.group)
        self._policy = policy
        self._coordinators = coordinators
        self._listeners = listeners
        self._handler = handler
        self._timer = HeartbeatTimer(policy.backoff)
        found, on_login_refused = handler.on_classic_group, listeners.failed
        self._check = ClassicCheck(self.group, coordinators, policy.backoff, found, on_login_refused)
        self._node: NodeId | None = None  # the last coordinator

    @property
    def _is_joining(self) -> bool:
        return self.epoch == JOIN_EPOCH

    # --- what the membership decides ---------------------------------------------------------------------------------

    def join(self) -> None:
        """The next heartbeat joins, with epoch 0."""
        self.epoch = JOIN_EPOCH
        self.may_be_known = False
        self.fields.start_over()
        self._timer.is_urgent = True
        self._start_check()

    def hurry(self) -> None:
        """There is something to say: the next heartbeat leaves at once."""
        self._timer.is_urgent = True

    def unassigned(self, now: float) -> None:
        """This member has no partitions yet: others may be releasing them for it."""
        self._timer.unassigned(now)

    def fenced(self, now: float) -> None:
        self._timer.fenced(now)

    def start_over(self) -> None:
        """Ignore the answer to a heartbeat in flight."""
        self._timer.start_over()

    def fenced_after(self, session: float | None) -> float:
        return self._timer.fenced_after(session)

    def _start_check(self) -> None:
        """With group.protocol=consumer a group is converted without a check, as in Kafka's client."""
        self._check.start_over()
        self._check.is_clear = self._policy.group.group_protocol != "auto"

    # --- requests ----------------------------------------------------------------------------------------------------

    def next_requests(self, patience: float, now: float) -> Poll:
        """`patience`: seconds that the application may still go without a poll."""
        node = self._coordinators.of(self.group)
        if node is None:
            return Poll(wait=patience)
        check = self._check if self._is_joining and not self._check.is_clear else None
        wait = self._timer.wait(now) if check is None else max(self._timer.wait(now), check.wait(now))
        if wait > 0:
            return Poll(wait=min(wait, patience))
        return Poll((self._heartbeat(node, now) if check is None else check.ask(node),), patience)

    def _heartbeat(self, node: NodeId, now: float) -> UnsentRequest:
        if node != self._node:
            self.fields.start_over()
            self._node = node
        subscription = self.fields.subscription
        owned = self._handler.owned_to_report(is_full=self.fields.is_full)
        heartbeat = self.fields.heartbeat(self.member_id, self.epoch, owned)
        self.may_be_known = True
        membership = self._timer.sent(now)

        def on_response(response: Any, now: float) -> None:
            if self._timer.is_current(membership):
                self._on_response(node, subscription, response, now)

        def on_failure(error: MultilaneError, now: float) -> None:
            if self._timer.is_current(membership):
                self._on_failure(node, error, now)

        return heartbeat_to(node, heartbeat, on_response, on_failure)

    def is_answer_awaited(self, now: float) -> bool:
        return self._timer.wait(now) == NEVER

    def leave(self, node: NodeId, left: Callable[[], None], now: float) -> UnsentRequest:
        """`left` is called after the answer or the failure."""
        membership = self._timer.sent(now)

        def answered(*_: object) -> None:
            if self._timer.is_current(membership):
                left()

        return heartbeat_to(node, self.fields.leave_heartbeat(self.member_id), answered, answered)

    def leave_unanswered(self, node: NodeId) -> UnsentRequest:

        def ignored(*_: object) -> None: ...  # whether it arrived or not, the next request joins

        return heartbeat_to(node, self.fields.leave_heartbeat(self.member_id), ignored, ignored)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _on_response(self, node: NodeId, subscription: Subscription, response: Any, now: float) -> None:
        code = int(response.error_code)
        if code:
            self._on_error(node, code, response.error_message, now)
            return
        try:
            epoch, target = self._read(response)
        except WireError as error:
            log.warning("group %s: ignoring an answer to a heartbeat: %s", self.group, error)
            self._retry(now)
            return
        has_joined = self._is_joining
        self._timer.answered(response.heartbeat_interval.total_seconds())
        if has_joined:
            self._timer.joined(now)
        self.fields.acknowledged(subscription)
        self.member_id = response.member_id or self.member_id
        self.epoch = epoch
        if target is None and has_joined:
            log.warning("group %s: the coordinator sent no assignment, not even an empty one", self.group)
            self.fields.start_over()  # a complete heartbeat is answered with an assignment
        self._handler.on_answer(target, now)

    def _read(self, response: Any) -> tuple[int, TargetAssignment | None]:
        epoch = int(response.member_epoch)
        if epoch <= JOIN_EPOCH or epoch < self.epoch:
            raise WireError(f"the coordinator answered epoch {self.epoch} with epoch {epoch}")
        return epoch, None if response.assignment is None else read_target(response.assignment)

    def _on_error(self, node: NodeId, code: int, text: str | None, now: float) -> None:
        match meaning(code, self.epoch):
            case HeartbeatError.FENCED:
                log.warning("group %s: %s is no longer a member: error code %d", self.group, self.member_id, code)
                self._handler.on_fenced(now)
            case HeartbeatError.UNSUPPORTED:
                self._handler.on_not_offered(refusal(code, text, self._policy), now)
            case HeartbeatError.FINAL:
                self._handler.on_refused(refusal(code, text, self._policy), now)
            case HeartbeatError.REPORT:
                self._listeners.failed(refusal(code, text, self._policy))
                self._retry(now)
            case HeartbeatError.FIND_COORDINATOR:
                self._coordinators.forget(self.group, node)
                self._retry(now)
            case HeartbeatError.BACK_OFF:
                self._retry(now)

    def _on_failure(self, node: NodeId, error: MultilaneError, now: float) -> None:
        if isinstance(error, UnsupportedVersion):
            self._handler.on_not_offered(version_refusal(self.fields.subscription, self._policy), now)
        elif error.retriable or isinstance(error, AuthenticationError):
            if not error.retriable:
                self._listeners.failed(error)
            self._coordinators.forget(self.group, node)
            self._retry(now)
        else:
            self._handler.on_refused(error, now)

    def _retry(self, now: float) -> None:
        self.fields.start_over()
        self._handler.on_interrupted()
        self._timer.failed(now)
        self._start_check()
