"""One member of a classic group: the state machine between the application's steps and the coordinator's answers.

Thread: none (pure state machine); owned by the network thread, one per consumer that subscribes.

Owns the subscription and the state (`states.py` has the table). `Holdings` knows what the application owns,
`Dialogue` talks to the coordinator, `GroupEntry` runs a rebalance. Never calls the application: it asks for a step and
continues when that is done. Heartbeats go on meanwhile; whether we are still a member the coordinator says.

Eager, everything is given up before JoinGroup. Cooperative, JoinGroup says what we hold, and after SyncGroup we give up
only what is not ours any more; then we join again, so that others can have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from multilane.client.group.assignors import all_cooperative
from multilane.client.group.classic.dialogue import LOOK_AGAIN, Dialogue
from multilane.client.group.classic.entry import GroupEntry
from multilane.client.group.classic.holdings import Holdings, Partitions
from multilane.client.group.classic.joining import SHOWN
from multilane.client.group.classic.states import BEATING, MEMBER, ClassicState, checked
from multilane.client.group.classic.verdicts import ErrorVerdict, is_fenced_instance, judge, refused_pattern, told
from multilane.client.group.membership import HUNGRY_FOR, Change, Identity, Subscription
from multilane.client.net.requests import NEVER, Poll, UnsentRequest
from multilane.errors import BrokerError, GroupError, MultilaneError, WireError, printable
from multilane.logs import logger
from multilane.wire.messages import ApiKey
from multilane.wire.subscription import NO_GENERATION

if TYPE_CHECKING:
    from multilane.client.group.assignors import Assignor
    from multilane.client.group.membership import Coordinators, MemberListeners, MemberPolicy, Pulse
    from multilane.types import TopicPartition

log = logger(__name__)

_BROKEN_ANSWERS: Final = 4  # in a row, until we believe that the next will be no better
_TICK: Final = 0.001


class ClassicMembership:
    def __init__(
        self,
        policy: MemberPolicy,
        pulse: Pulse,
        coordinators: Coordinators,
        listeners: MemberListeners,
        assignors: Sequence[Assignor],
    ) -> None:
        if not assignors:
            raise ValueError("a classic membership needs at least one assignor")
        self.state = ClassicState.OUTSIDE
        self._policy = policy
        self._pulse = pulse
        self._listeners = listeners
        self._cooperative = all_cooperative(assignors)
        self._talk = Dialogue(policy, coordinators, self)
        self.fenced_after = self._talk.fenced_after
        self._entry = GroupEntry(self._talk, listeners, assignors, policy.rack)
        self._holdings = Holdings(listeners.step)
        self._subscription: Subscription | None = None
        self._target: Partitions = frozenset()
        self._rejoin: str | None = None  # why another rebalance is due
        self._reason = ""
        self._announced_at: float | None = None  # since when the group waits for us
        self._failure: MultilaneError | None = None
        self._hungry_until = 0.0
        self._left: list[Callable[[], None]] = []

    # --- what others see ---------------------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity | None:
        talk = self._talk
        if self.state not in MEMBER or talk.generation == NO_GENERATION:
            return None
        return Identity(talk.group, talk.member_id, talk.generation, talk.instance_id, "classic")

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._holdings.owned

    @property
    def refusal(self) -> MultilaneError | None:
        return self._failure

    @property
    def is_leader(self) -> bool:
        return self._entry.leads

    @property
    def topics_to_watch(self) -> frozenset[str]:
        """Topics that must be in the picture of the cluster: our own, and where we lead those of all members."""
        return self._wanted.topics | self._entry.leader.topics

    @property
    def _wanted(self) -> Subscription:
        return self._subscription or Subscription()

    # --- what the consumer wants -------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, now: float) -> None:
        """Join, or tell the group. With no topics at all (a pattern that fits none yet) we are a member all the same;
        to be none is `leave`."""
        self._subscription = subscription
        if self.state is ClassicState.OUTSIDE:
            self._to(ClassicState.JOINING)
            self._reason = "the consumer subscribes"
            self._hungry_until = now + HUNGRY_FOR

    def rejoin(self, reason: str, now: float) -> None:
        if self.state in (ClassicState.STABLE, ClassicState.RECONCILING, ClassicState.SYNCING):
            self._rejoin = reason

    def step_done(self, ticket: int, now: float) -> None:
        step = self._holdings.done(ticket)
        if step is None:
            return
        if self.state is ClassicState.REVOKING:
            self._give_up_or_join(now)
        elif self.state is ClassicState.RECONCILING:
            if step.change is Change.ASSIGNED:
                self._to(ClassicState.STABLE)
            else:
                self._begin_with_target(now)
        elif self.state is ClassicState.LOSING:
            self._give_up_lost(now)

    def leave(self, left: Callable[[], None], now: float) -> None:
        self._subscription = None
        if self.state is ClassicState.OUTSIDE:
            left()
            return
        self._left.append(left)
        if self.state is ClassicState.LEAVING:
            return
        self._holdings.drop()
        self._to(ClassicState.LEAVING)
        said = self._talk.goodbye("the consumer unsubscribes or closes", self._on_left)
        self._end_membership()
        self._tidy_line()
        if not said:
            self._on_left(now)

    def fenced(self, error: MultilaneError, now: float) -> None:
        """A commit may have been overtaken by a join, and its error then means an older self of ours: the coordinator
        is asked at once whether the present one is a member. While a JoinGroup waits its answer will tell."""
        if self.state in BEATING:
            self._talk.hurry(now)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        goodbyes = self._talk.say_goodbyes(now)  # first: who cannot say it is out at once, and may join again
        waits = [self._watch_application(now)]
        if self.state is ClassicState.STABLE:
            waits.append(self._look_for_reasons(now))
        self._tidy_line()
        requests: list[UnsentRequest] = []
        if self.state is ClassicState.JOINING:
            waits.append(self._ask_to_join(requests, now))
        elif self.state is ClassicState.SYNCING:
            waits.append(self._ask_to_sync(requests, now))
        if self.state in BEATING:
            if self._is_hungry(now):
                self._talk.soon(now)
            waits.append(self._talk.beat(requests, now))
        goodbyes += self._talk.say_goodbyes(now)  # an application that went away a moment ago
        waits.append(self._talk.watch_hold(now, is_free=not self.owned))
        return Poll((*goodbyes, *requests), min(waits))

    def _is_hungry(self, now: float) -> bool:
        """Just joined, cooperatively, and with nothing yet: others are giving up what the next rebalance gives us."""
        return self._cooperative and self.state is ClassicState.STABLE and not self.owned and now < self._hungry_until

    def _watch_application(self, now: float) -> float:
        limit = self._policy.group.max_poll_interval
        if self.state is ClassicState.AWAY:
            if self._pulse.idle(now) >= limit:
                return LOOK_AGAIN
            self._lose(now)
        elif self.state in MEMBER and self._talk.member_id:
            if self._pulse.expire(now, limit):
                self._go_away(now)
                return LOOK_AGAIN
            if not self._pulse.is_polling:
                return max(_TICK, self._pulse.last + limit - now)
        return NEVER

    def _go_away(self, now: float) -> None:
        log.warning(
            "group %s: the application has not polled for %.0f s, so this member leaves and others get its partitions; "
            "raise max.poll.interval.ms (%d) or lower max.poll.records, so that the records of one poll take less",
            printable(self._talk.group, SHOWN),
            self._pulse.idle(now),
            int(self._policy.group.max_poll_interval * 1000),
        )
        self._talk.goodbye("the application did not poll within max.poll.interval.ms", lambda _: None)
        self._end_membership()
        self._to(ClassicState.AWAY)

    def _look_for_reasons(self, now: float) -> float:
        if self._rejoin is None and self._subscription != self._entry.told:
            self._rejoin = "the subscription changed"
        if self._rejoin is None and self.is_leader:
            self._rejoin = self._entry.leader.why_again(now)
        if self._rejoin is not None:
            self._rebalance(self._rejoin, now)
            return NEVER
        return self._entry.leader.look_again(now) if self.is_leader else NEVER

    def _tidy_line(self) -> None:
        """Hang up when the rebalance is over, or when the line is blocked by what nobody wants any more. Not from
        within an answer: that comes from this very line."""
        talk = self._talk
        needed = self.state in (ClassicState.JOINING, ClassicState.REVOKING, ClassicState.SYNCING)
        needed = needed or (self.state is ClassicState.RECONCILING and self._rejoin is not None)
        if talk.has_line and (talk.line_is_stuck or not needed):
            talk.has_line = talk.line_is_stuck = False
            self._listeners.hang_up(talk.owner)

    def _ask_to_join(self, requests: list[UnsentRequest], now: float) -> float:
        wait = self._talk.entry_wait(now)
        if wait > 0:
            return wait
        if self._surplus():  # the subscription has changed while we tried
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
            return LOOK_AGAIN
        requests.append(request)
        return NEVER

    def _ask_to_sync(self, requests: list[UnsentRequest], now: float) -> float:
        try:
            return self._entry.sync(requests, now)
        except GroupError as error:
            self._fail(error, now)
            return NEVER

    # --- what the coordinator says -----------------------------------------------------------------------------------

    def on_joined(self, response: Any, now: float) -> None:
        try:
            generation = self._entry.take_join(response, now)
        except WireError as error:
            self._broken(error, now)
        except BrokerError as error:
            self.on_error(ApiKey.JOIN_GROUP, error, now)
        else:
            if self.owned and self._entry.has_gone_back(generation):
                self._lose(now, keep_id=True)
                return
            self._to(ClassicState.SYNCING)
            self._talk.rest(now)

    def on_synced(self, response: Any, now: float) -> None:
        try:
            assigned = self._entry.take_sync(response, self._wanted)
        except WireError as error:
            self._broken(error, now)
        except BrokerError as error:
            self.on_error(ApiKey.SYNC_GROUP, error, now)
        else:
            self._talk.syncing.state.succeeded()
            self._listeners.observer.count("group.rebalances")
            self._announced_at = None
            if self._entry.is_misunderstood:
                self._rejoin = self._rejoin or "the assignment was made for another subscription"
            self._reconcile(assigned, now)

    def on_interrupted(self, now: float) -> None:
        self._rebalance("the answer to SyncGroup was lost", now)

    def on_error(self, api: ApiKey, error: MultilaneError, now: float) -> None:
        if api is ApiKey.HEARTBEAT and self.state not in BEATING:
            return  # JoinGroup is under way, and its answer will tell
        verdict = judge(error)
        if verdict is ErrorVerdict.LOGIN:
            self._listeners.failed(error)
        elif verdict is ErrorVerdict.FATAL:
            self._fail(told(error, self._policy.group), now, leave=not is_fenced_instance(error))
        elif verdict is ErrorVerdict.REBALANCE:
            self._on_rebalance(api, now)
        else:
            log.warning("%s; joining anew", error)
            self._listeners.observer.count("group.fenced")
            self._lose(now, keep_id=verdict is ErrorVerdict.STALE)

    def _on_rebalance(self, api: ApiKey, now: float) -> None:
        if api is ApiKey.SYNC_GROUP:
            self._rebalance("the group began another rebalance", now)
        elif self.state in (ClassicState.STABLE, ClassicState.RECONCILING):
            self._announced_at = now if self._announced_at is None else self._announced_at
            self._rejoin = self._rejoin or "the group is rebalancing"

    def _broken(self, error: MultilaneError, now: float) -> None:
        """An answer that makes no sense: once may be chance, and after several nothing is to be hoped for."""
        entry = self._talk.syncing
        entry.state.failed(now)
        if entry.state.failures >= _BROKEN_ANSWERS:
            self._fail(GroupError(f"{error}; is there a member in the group that is no consumer?"), now)
            return
        log.warning("%s; joining again", error)
        if self.state is ClassicState.SYNCING:
            self._rebalance("an answer could not be read", now)

    # --- moves -------------------------------------------------------------------------------------------------------

    def _to(self, state: ClassicState) -> None:
        self.state = checked(self.state, state)

    def _rebalance(self, reason: str, now: float) -> None:
        self._rejoin, self._reason = None, reason
        self._entry.begin()
        if self._surplus():
            self._to(ClassicState.REVOKING)
            self._ask_to_revoke(now)
        elif self.state is not ClassicState.JOINING:
            self._to(ClassicState.JOINING)

    def _surplus(self) -> Partitions:
        """What must not be in the application's hands when JoinGroup is sent."""
        if not self._cooperative:
            return self.owned
        wanted = self._wanted.topics
        return frozenset(partition for partition in self.owned if partition.topic not in wanted)

    def _ask_to_revoke(self, now: float) -> None:
        since = now if self._announced_at is None else self._announced_at
        self._holdings.ask(Change.REVOKED, self._surplus(), since + self._policy.group.max_poll_interval)

    def _give_up_or_join(self, now: float) -> None:
        if self._surplus():  # the subscription changed once more
            self._ask_to_revoke(now)
        else:
            self._announced_at = None
            self._to(ClassicState.JOINING)

    def _reconcile(self, target: Partitions, now: float) -> None:
        self._target = target
        self._to(ClassicState.RECONCILING)
        gone = self.owned - target
        if gone:
            self._rejoin = self._rejoin or "partitions were given up for others"
            self._holdings.ask(Change.REVOKED, gone, now + self._policy.group.max_poll_interval)
        else:
            self._begin_with_target(now)

    def _begin_with_target(self, now: float) -> None:
        added = self._target - self.owned
        self._holdings.ask(Change.ASSIGNED, added, now + self._policy.group.max_poll_interval)

    def _lose(self, now: float, *, keep_id: bool = False) -> None:
        self._end_membership(keep_id=keep_id)
        self._reason = "membership was lost"
        self._to(ClassicState.LOSING)
        self._give_up_lost(now)

    def _give_up_lost(self, now: float) -> None:
        if self._holdings.step is not None:
            return
        if self.owned:
            self._listeners.observer.count("group.lost", len(self.owned))
            self._holdings.ask(Change.LOST, self.owned, now + self._policy.group.max_poll_interval)
        else:
            self._to(ClassicState.JOINING if self._failure is None else ClassicState.FAILED)

    def _fail(self, error: MultilaneError, now: float, *, leave: bool = True) -> None:
        self._failure = error
        if leave:
            self._talk.goodbye("this member cannot go on", lambda _: None)
        self._lose(now)
        self._listeners.failed(error)

    def _end_membership(self, *, keep_id: bool = False) -> None:
        self._talk.abandon()
        self._talk.forget_member(keep_id=keep_id)
        self._entry.end()
        self._rejoin = self._announced_at = None

    def _on_left(self, now: float) -> None:
        self._to(ClassicState.OUTSIDE)
        self._failure = None
        self._entry.forget()
        left, self._left = self._left, []
        for callback in left:
            callback()
        if self.state is ClassicState.OUTSIDE and self._subscription is not None:
            self.subscribe(self._subscription, now)
