"""What a member says to its coordinator, under which name, and when.

Thread: none (pure); belongs to a membership.

Owns the member id and the generation, the requests under way and the times of heartbeats. JoinGroup and SyncGroup wait
at the broker for other members, so they travel on a connection of their own. Errors that pass (the coordinator moved,
loads, cannot be reached) are dealt with here: it is looked for again, and the same is said after a while by the same
name. Everything else is for the membership (`Hearer`) to judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from multilane.client.group.classic.exchange import Exchange, ExchangeKind
from multilane.client.group.classic.verdicts import ErrorVerdict, judge
from multilane.client.group.membership import EARLY, HUNGRY_PACE
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

_ANSWER_LAPSE: Final = 5.0  # what a coordinator may take to answer once it has stopped waiting
_LOOK_EVERY: Final = 1 / 3  # of a session, while JoinGroup or SyncGroup is held
LOOK_AGAIN: Final = 1.0  # for a coordinator that is being looked for


class Hearer(Protocol):
    """Whom answers are told. An `error` has a verdict other than PASSING; a failed heartbeat that passes is no news."""

    def on_joined(self, response: Any, now: float) -> None: ...

    def on_synced(self, response: Any, now: float) -> None: ...

    def on_interrupted(self, now: float) -> None:
        """SyncGroup was not answered, and will not be repeated: whether it arrived is unknown."""
        ...

    def on_error(self, api: ApiKey, error: MultilaneError, now: float) -> None: ...


@dataclass(frozen=True, slots=True)
class _Farewell:
    """A LeaveGroup that is still to be sent, by the name we had then."""

    who: ClassicMember
    reason: str
    done: Callable[[float], None]


class Dialogue:
    def __init__(self, policy: MemberPolicy, coordinators: Coordinators, hearer: Hearer) -> None:
        config = policy.group
        if config.group_id is None:
            raise ValueError("a membership needs a group.id")
        self.group: Final = config.group_id
        self.instance_id: Final = config.group_instance_id
        self.member_id = ""
        self.generation = NO_GENERATION
        self.owner: Final = f"join-{policy.name}"
        self._farewells: list[_Farewell] = []
        self._policy = policy
        self._coordinators = coordinators
        self._hearer = hearer
        self._times = JoinTimes(config.session_timeout, config.max_poll_interval)
        own, patience = Channel(self.owner), config.max_poll_interval + _ANSWER_LAPSE
        self.joining = Exchange(ExchangeKind(ApiKey.JOIN_GROUP, JOIN_GROUP_AT_LEAST, own, patience), policy.backoff)
        self.syncing = Exchange(ExchangeKind(ApiKey.SYNC_GROUP, SYNC_GROUP_AT_LEAST, own, patience), policy.backoff)
        beat = ExchangeKind(ApiKey.HEARTBEAT, HEARTBEAT_AT_LEAST, CONTROL, config.session_timeout)
        self._beating = Exchange(beat, policy.backoff)
        self._beat_at = NEVER
        self._beat_sent = self._heard_at = self._held_until = NEVER
        self._login_refused = False  # and that was told
        self.has_line = False  # the connection of our own may be open
        self.line_is_stuck = False  # something waits on it that nobody wants any more

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
        """Seconds until JoinGroup or SyncGroup may be sent; infinite while one is under way."""
        return max(self.joining.state.wait(now), self.syncing.state.wait(now))

    def join(self, protocols: Sequence[tuple[str, bytes]], reason: str) -> UnsentRequest | None:
        node = self._coordinators.of(self.group)
        if node is None:
            return None
        who, self.has_line = self.who, True
        return self.joining.request(
            node,
            lambda version: join_group_request(version, who, self._times, protocols, reason),
            lambda response, at, now: self._heard(self.joining, ApiKey.JOIN_GROUP, response, at, now),
            lambda error, at, now: self._trouble(self.joining, ApiKey.JOIN_GROUP, error, at, now),
        )

    def sync(self, protocol: str, assignments: Mapping[str, bytes]) -> UnsentRequest | None:
        node = self._coordinators.of(self.group)
        if node is None:
            return None
        who, self.has_line = self.who, True
        return self.syncing.request(
            node,
            lambda version: sync_group_request(version, who, protocol, assignments),
            lambda response, at, now: self._heard(self.syncing, ApiKey.SYNC_GROUP, response, at, now),
            lambda error, at, now: self._trouble(self.syncing, ApiKey.SYNC_GROUP, error, at, now),
        )

    def abandon(self) -> None:
        """Nothing that is under way matters any more."""
        waiting = [exchange.abandon() for exchange in (self.joining, self.syncing)]
        self._beating.abandon()
        self._beat_at = NEVER
        self.line_is_stuck = self.line_is_stuck or any(waiting)

    def forget_member(self, *, keep_id: bool = False) -> None:
        self.generation = NO_GENERATION
        if not keep_id:
            self.member_id = ""

    def fenced_after(self, session: float | None) -> float:
        """We say how long a session is."""
        del session
        return self._held_until if self._is_held else self._heard_at + self._policy.group.session_timeout

    @property
    def _is_held(self) -> bool:
        return self.joining.state.in_flight or self.syncing.state.in_flight

    def watch_hold(self, now: float, *, is_free: bool) -> float:
        """While the coordinator holds our JoinGroup or SyncGroup it does not count on heartbeats. But it counts from
        its answer on, and a process that is stopped does not hear that: whoever has not looked for a session is not
        sure any more. `is_free`: we hold nothing that others could have. Seconds until the next look."""
        session = self._policy.group.session_timeout
        if not self._is_held:
            self._held_until = self._heard_at + session
            return NEVER
        if is_free or now <= self._held_until:
            self._held_until = now + session
        return session * _LOOK_EVERY

    # --- heartbeats --------------------------------------------------------------------------------------------------

    def rest(self, now: float) -> None:
        """The coordinator has heard of us in another way; what it says to older heartbeats is old. Just now, unless we
        were stopped meanwhile: then a heartbeat has to tell."""
        self._beating.abandon()
        if now <= self._held_until:
            self._heard_at = now
            self._beat_at = now + EARLY * self._policy.group.heartbeat_interval
        else:
            self._beat_at = now

    def soon(self, now: float) -> None:
        """Somebody may be giving up what will be ours: ask more often whether it is so."""
        self._beat_at = min(self._beat_at, now + HUNGRY_PACE)

    def hurry(self, now: float) -> None:
        """Ask with the next heartbeat whether we are still a member, and do not wait for it."""
        self._beat_at = min(self._beat_at, now)

    def beat(self, requests: list[UnsentRequest], now: float) -> float:
        """Add a heartbeat when it is time for one; seconds until the next."""
        wait = max(self._beat_at - now, self._beating.state.wait(now))
        if wait > 0:
            return wait
        node = self._coordinators.of(self.group)
        if node is None:
            return LOOK_AGAIN
        self._beat_sent = now
        who, self._beat_at = self.who, now + EARLY * self._policy.group.heartbeat_interval
        requests.append(
            self._beating.request(
                node,
                lambda version: heartbeat_request(version, who),
                lambda response, at, then: self._heard(self._beating, ApiKey.HEARTBEAT, response, at, then),
                lambda error, at, then: self._trouble(self._beating, ApiKey.HEARTBEAT, error, at, then),
            )
        )
        return NEVER

    # --- leaving -----------------------------------------------------------------------------------------------------

    def goodbye(self, reason: str, done: Callable[[float], None]) -> bool:
        """Say LeaveGroup as soon as the coordinator is known; False when there is nothing to say. A static member never
        says it: its place is kept for it until the session is over."""
        if not self.member_id or self.is_static:
            return False
        self._farewells.append(_Farewell(self.who, reason, done))
        return True

    def say_goodbyes(self, now: float) -> list[UnsentRequest]:
        """What is to be sent of them. Nobody waits for a coordinator that cannot be found."""
        if not self._farewells:
            return []
        node = self._coordinators.of(self.group)
        error = self._coordinators.why(self.group) if node is None else None
        if node is None and error is None:
            return []  # it is being looked for
        farewells, self._farewells = self._farewells, []
        if node is not None:
            return [self._leave_request(node, farewell) for farewell in farewells]
        log.warning("%s was not sent: the coordinator is unknown (%s)", self.what(ApiKey.LEAVE_GROUP), error)
        for farewell in farewells:
            farewell.done(now)
        return []

    def _leave_request(self, node: NodeId, farewell: _Farewell) -> UnsentRequest:

        def answered(response: Any, now: float) -> None:
            codes = [int(response.error_code), *(int(member.error_code) for member in response.members)]
            if any(codes):
                error = broker_error(next(filter(None, codes)), self.what(ApiKey.LEAVE_GROUP))
                log.info("%s; the group will notice when the session is over", error)
            farewell.done(now)

        def failed(error: MultilaneError, now: float) -> None:
            log.info("%s failed: %s; the group will notice when the session is over", ApiKey.LEAVE_GROUP.name, error)
            self._coordinators.forget(self.group, node)
            farewell.done(now)

        return UnsentRequest(
            api=ApiKey.LEAVE_GROUP,
            build=lambda version: leave_group_request(version, farewell.who, farewell.reason),
            on_response=answered,
            on_failure=failed,
            node=node,
            at_least=LEAVE_GROUP_AT_LEAST,
        )

    # --- answers -----------------------------------------------------------------------------------------------------

    def _heard(self, exchange: Exchange, api: ApiKey, response: Any, node: NodeId, now: float) -> None:
        self._login_refused = False
        code = int(response.error_code)
        if code:
            error = broker_error(code, self.what(api))
            if judge(error) is ErrorVerdict.NEEDS_ID and not self.member_id:
                self._take_id(str(getattr(response, "member_id", "")), now)
            else:
                self._trouble(exchange, api, error, node, now)
        elif api is ApiKey.HEARTBEAT:
            exchange.state.succeeded()
            self._heard_at = self._beat_sent
        elif api is ApiKey.JOIN_GROUP:
            exchange.state.succeeded()
            self._hearer.on_joined(response, now)
        else:
            # Whether it went well is known when the assignment has been read.
            self._hearer.on_synced(response, now)

    def _take_id(self, member_id: str, now: float) -> None:
        """KIP-394: who is new gets an id first, and joins with it at once."""
        self.joining.state.failed(now)  # a coordinator that forgets its ids must not keep us running in circles
        if member_id:
            self.joining.state.rest_until(now)
        self.member_id = member_id

    def _trouble(self, exchange: Exchange, api: ApiKey, error: MultilaneError, node: NodeId, now: float) -> None:
        verdict = judge(error)
        if verdict in (ErrorVerdict.PASSING, ErrorVerdict.LOGIN):
            self._try_again(exchange, api, error, node, now)
            return
        if api is ApiKey.HEARTBEAT:
            exchange.state.succeeded()  # it arrived
        else:
            exchange.stumbled(now)
        self._hearer.on_error(api, error, now)

    def _try_again(self, exchange: Exchange, api: ApiKey, error: MultilaneError, node: NodeId, now: float) -> None:
        exchange.state.failed(now)
        self._coordinators.forget(self.group, node)
        log.info("%s failed, trying again: %s", self.what(api), error)
        if judge(error) is ErrorVerdict.LOGIN and not self._login_refused:
            self._login_refused = True
            self._hearer.on_error(api, error, now)
        if api is ApiKey.HEARTBEAT:
            self._beat_at = now
        elif api is ApiKey.SYNC_GROUP:
            self._hearer.on_interrupted(now)
