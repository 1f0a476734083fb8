"""A classic member's requests to its coordinator: contents, member id, and timing.

Thread: none (pure); belongs to a membership.

Owns the member id and the generation, the requests in flight and the times of heartbeats. JoinGroup and SyncGroup wait
at the broker for other members, so they have a connection of their own. Retriable errors (the coordinator moved, is
loading, is unreachable) are handled here: the coordinator is looked up again, and the request is retried after a while
with the same member id. The membership (`AnswerHandler`) handles everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from multilane.client.group.classic.exchange import Exchange, ExchangeKind
from multilane.client.group.classic.verdicts import ErrorVerdict, judge
from multilane.client.group.membership import HEARTBEAT_FRACTION, UNASSIGNED_INTERVAL
from multilane.client.net.requests import CONTROL, NEVER, Channel, UnsentRequest
from multilane.errors import MultilaneError, broker_error, printable
from multilane.logs import logger
from multilane.wire.compose_classic import (
    HEARTBEAT_AT_LEAST,
    JOIN_GROUP_AT_LEAST,
    LEAVE_GROUP_AT_LEAST,
    SYNC_GROUP_AT_LEAST,
    ClassicMember,
    JoinTimes,
    heartbeat_request,
    join_group_request,
    leave_group_request,
    sync_group_request,
)
from multilane.wire.messages import ApiKey
from multilane.wire.subscription import NO_GENERATION

if TYPE_CHECKING:
    from multilane.client.group.membership import Coordinators, MemberPolicy
    from multilane.types import NodeId

log = logger(__name__)

_ANSWER_LAPSE: Final = 5.0  # allowed for the answer after the coordinator has stopped waiting
_REBALANCE_CHECKS: Final = 1 / 3  # of a session: how often an unanswered JoinGroup or SyncGroup is checked
COORDINATOR_WAIT: Final = 1.0  # poll interval while the coordinator is looked up


class AnswerHandler(Protocol):
    """Receives answers. An `error` has a verdict other than PASSING. Retriable heartbeat errors are not reported."""

    def on_joined(self, response: Any, now: float) -> None: ...

    def on_synced(self, response: Any, now: float) -> None: ...

    def on_interrupted(self, now: float) -> None:
        """SyncGroup was not answered and is not retried: whether it arrived is unknown."""
        ...

    def on_error(self, api: ApiKey, error: MultilaneError, now: float) -> None: ...


@dataclass(frozen=True, slots=True)
class _PendingLeave:
    """A LeaveGroup that is still to be sent, with the member id of that time."""

    who: ClassicMember
    reason: str
    done: Callable[[float], None]


class MemberRequests:
    def __init__(self, policy: MemberPolicy, coordinators: Coordinators, handler: AnswerHandler) -> None:
        config = policy.group
        if config.group_id is None:
            raise ValueError("a membership needs a group.id")
        self.group: Final = config.group_id
        self.instance_id: Final = config.group_instance_id
        self.member_id = ""
        self.generation = NO_GENERATION
        self.owner: Final = f"join-{policy.name}"
        self._leaves: list[_PendingLeave] = []
        self._policy = policy
        self._coordinators = coordinators
        self._handler = handler
        self._times = JoinTimes(config.session_timeout, config.max_poll_interval)
        own, patience = Channel(self.owner), config.max_poll_interval + _ANSWER_LAPSE
        self.joining = Exchange(ExchangeKind(ApiKey.JOIN_GROUP, JOIN_GROUP_AT_LEAST, own, patience), policy.backoff)
        self.syncing = Exchange(ExchangeKind(ApiKey.SYNC_GROUP, SYNC_GROUP_AT_LEAST, own, patience), policy.backoff)
        kind = ExchangeKind(ApiKey.HEARTBEAT, HEARTBEAT_AT_LEAST, CONTROL, config.session_timeout)
        self._heartbeats = Exchange(kind, policy.backoff)
        self._next_heartbeat = NEVER
        self._heartbeat_sent = self._confirmed_at = self._certain_until = NEVER
        self._login_refused = False  # and reported
        self.has_connection = False  # the connection for JoinGroup and SyncGroup may be open
        self.is_connection_stuck = False  # an abandoned request waits on it

    @property
    def who(self) -> ClassicMember:
        return ClassicMember(self.group, self.member_id, self.instance_id, self.generation)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def what(self, api: ApiKey) -> str:
        return f"{api.name} of group {printable(self.group, 100)}"

    # --- joining -----------------------------------------------------------------------------------------------------

    def entry_wait(self, now: float) -> float:
        """Seconds until JoinGroup or SyncGroup may be sent; infinite while one is in flight."""
        return max(self.joining.state.wait(now), self.syncing.state.wait(now))

    def join(self, protocols: Sequence[tuple[str, bytes]], reason: str) -> UnsentRequest | None:
        node = self._coordinators.of(self.group)
        if node is None:
            return None
        who, self.has_connection = self.who, True
        return self.joining.request(
            node,
            lambda version: join_group_request(version, who, self._times, protocols, reason),
            lambda response, at, now: self._on_answer(self.joining, ApiKey.JOIN_GROUP, response, at, now),
            lambda error, at, now: self._on_failure(self.joining, ApiKey.JOIN_GROUP, error, at, now),
        )

    def sync(self, protocol: str, assignments: Mapping[str, bytes]) -> UnsentRequest | None:
        node = self._coordinators.of(self.group)
        if node is None:
            return None
        who, self.has_connection = self.who, True
        return self.syncing.request(
            node,
            lambda version: sync_group_request(version, who, protocol, assignments),
            lambda response, at, now: self._on_answer(self.syncing, ApiKey.SYNC_GROUP, response, at, now),
            lambda error, at, now: self._on_failure(self.syncing, ApiKey.SYNC_GROUP, error, at, now),
        )

    def abandon(self) -> None:
        """Ignores the answers to all requests in flight."""
        waiting = [exchange.abandon() for exchange in (self.joining, self.syncing)]
        self._heartbeats.abandon()
        self._next_heartbeat = NEVER
        self.is_connection_stuck = self.is_connection_stuck or any(waiting)

    def forget_member(self, *, keep_id: bool = False) -> None:
        self.generation = NO_GENERATION
        if not keep_id:
            self.member_id = ""

    def fenced_after(self, session: float | None) -> float:
        """The client sets the session timeout."""
        del session
        return (
            self._certain_until if self._awaits_rebalance else self._confirmed_at + self._policy.group.session_timeout
        )

    @property
    def _awaits_rebalance(self) -> bool:
        return self.joining.state.in_flight or self.syncing.state.in_flight

    def watch_rebalance(self, now: float, *, is_free: bool) -> float:
        """While a JoinGroup or SyncGroup waits at the coordinator, no heartbeats are expected. They are expected again
        from its answer on, and a suspended process does not receive that answer: after a session without a check,
        membership is uncertain. `is_free`: no partitions are owned that others could get. Returns the seconds until the
        next check."""
        session = self._policy.group.session_timeout
        if not self._awaits_rebalance:
            self._certain_until = self._confirmed_at + session
            return NEVER
        if is_free or now <= self._certain_until:
            self._certain_until = now + session
        return session * _REBALANCE_CHECKS

    # --- heartbeats --------------------------------------------------------------------------------------------------

    def postpone_heartbeat(self, now: float) -> None:
        """Another request has reached the coordinator; answers to older heartbeats are stale. It was reached just now,
        unless the process was suspended meanwhile: then a heartbeat is sent at once to find out."""
        self._heartbeats.abandon()
        if now <= self._certain_until:
            self._confirmed_at = now
            self._next_heartbeat = now + HEARTBEAT_FRACTION * self._policy.group.heartbeat_interval
        else:
            self._next_heartbeat = now

    def heartbeat_soon(self, now: float) -> None:
        """Another member may be releasing partitions for this one: send heartbeats more often."""
        self._next_heartbeat = min(self._next_heartbeat, now + UNASSIGNED_INTERVAL)

    def heartbeat_now(self, now: float) -> None:
        """Sends the next heartbeat at once, to find out whether this is still a member."""
        self._next_heartbeat = min(self._next_heartbeat, now)

    def heartbeat(self, requests: list[UnsentRequest], now: float) -> float:
        """Adds a heartbeat when it is due. Returns the seconds until the next."""
        wait = max(self._next_heartbeat - now, self._heartbeats.state.wait(now))
        if wait > 0:
            return wait
        node = self._coordinators.of(self.group)
        if node is None:
            return COORDINATOR_WAIT
        self._heartbeat_sent = now
        who, self._next_heartbeat = self.who, now + HEARTBEAT_FRACTION * self._policy.group.heartbeat_interval
        requests.append(
            self._heartbeats.request(
                node,
                lambda version: heartbeat_request(version, who),
                lambda response, at, then: self._on_answer(self._heartbeats, ApiKey.HEARTBEAT, response, at, then),
                lambda error, at, then: self._on_failure(self._heartbeats, ApiKey.HEARTBEAT, error, at, then),
            )
        )
        return NEVER

    # --- leaving -----------------------------------------------------------------------------------------------------

    def leave(self, reason: str, done: Callable[[float], None]) -> bool:
        """Sends LeaveGroup as soon as the coordinator is known; False if none is needed. A static member never sends
        it: the group keeps its partitions until the session expires."""
        if not self.member_id or self.is_static:
            return False
        self._leaves.append(_PendingLeave(self.who, reason, done))
        return True

    def send_leaves(self, now: float) -> list[UnsentRequest]:
        """The pending LeaveGroup requests. They are dropped if the coordinator cannot be found."""
        if not self._leaves:
            return []
        node = self._coordinators.of(self.group)
        error = self._coordinators.last_error(self.group) if node is None else None
        if node is None and error is None:
            return []  # the lookup is in progress
        leaves, self._leaves = self._leaves, []
        if node is not None:
            return [self._leave_request(node, leave) for leave in leaves]
        log.warning("%s was not sent: the coordinator is unknown (%s)", self.what(ApiKey.LEAVE_GROUP), error)
        for leave in leaves:
            leave.done(now)
        return []

    def _leave_request(self, node: NodeId, leave: _PendingLeave) -> UnsentRequest:

        def answered(response: Any, now: float) -> None:
            codes = [int(response.error_code), *(int(member.error_code) for member in response.members)]
            if any(codes):
                error = broker_error(next(filter(None, codes)), self.what(ApiKey.LEAVE_GROUP))
                log.info("%s; the group will notice when the session expires", error)
            leave.done(now)

        def failed(error: MultilaneError, now: float) -> None:
            log.info("%s failed: %s; the group will notice when the session expires", ApiKey.LEAVE_GROUP.name, error)
            self._coordinators.forget(self.group, node)
            leave.done(now)

        return UnsentRequest(
            api=ApiKey.LEAVE_GROUP,
            build=lambda version: leave_group_request(version, leave.who, leave.reason),
            on_response=answered,
            on_failure=failed,
            node=node,
            at_least=LEAVE_GROUP_AT_LEAST,
        )

    # --- answers -----------------------------------------------------------------------------------------------------

    def _on_answer(self, exchange: Exchange, api: ApiKey, response: Any, node: NodeId, now: float) -> None:
        self._login_refused = False
        code = int(response.error_code)
        if code:
            error = broker_error(code, self.what(api))
            if judge(error) is ErrorVerdict.NEEDS_ID and not self.member_id:
                self._take_id(str(getattr(response, "member_id", "")), now)
            else:
                self._on_failure(exchange, api, error, node, now)
        elif api is ApiKey.HEARTBEAT:
            exchange.state.succeeded()
            self._confirmed_at = self._heartbeat_sent
        elif api is ApiKey.JOIN_GROUP:
            exchange.state.succeeded()
            self._handler.on_joined(response, now)
        else:
            # Success is known only when the assignment has been read.
            self._handler.on_synced(response, now)

    def _take_id(self, member_id: str, now: float) -> None:
        """KIP-394: a new member first gets an id and joins with it at once."""
        self.joining.state.failed(now)  # no tight loop with a coordinator that forgets its ids
        if member_id:
            self.joining.state.rest_until(now)
        self.member_id = member_id

    def _on_failure(self, exchange: Exchange, api: ApiKey, error: MultilaneError, node: NodeId, now: float) -> None:
        verdict = judge(error)
        if verdict in (ErrorVerdict.PASSING, ErrorVerdict.LOGIN):
            self._retry(exchange, api, error, node, now)
            return
        if api is ApiKey.HEARTBEAT:
            exchange.state.succeeded()  # it arrived
        else:
            exchange.stumbled(now)
        self._handler.on_error(api, error, now)

    def _retry(self, exchange: Exchange, api: ApiKey, error: MultilaneError, node: NodeId, now: float) -> None:
        exchange.state.failed(now)
        self._coordinators.forget(self.group, node)
        log.info("%s failed, retrying: %s", self.what(api), error)
        if judge(error) is ErrorVerdict.LOGIN and not self._login_refused:
            self._login_refused = True
            self._handler.on_error(api, error, now)
        if api is ApiKey.HEARTBEAT:
            self._next_heartbeat = now
        elif api is ApiKey.SYNC_GROUP:
            self._handler.on_interrupted(now)
