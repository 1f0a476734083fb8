"""Several classic memberships against one coordinator, with faults: nobody reads what is another's, and all is read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from classic_group import NOT_COORDINATOR, ClassicGroup, Phase
from classic_harness import BACKOFF, group_config, picture, response
from multilane.client.group.assignors import find_assignor
from multilane.client.group.classic import ClassicMembership, ClassicState
from multilane.client.group.classic.member_requests import COORDINATOR_WAIT
from multilane.client.group.membership import (
    Change,
    MemberListeners,
    MemberPolicy,
    PollActivity,
    RebalanceStep,
    Subscription,
)
from multilane.client.net.requests import CONTROL, UnsentRequest
from multilane.errors import InstanceFenced, MultilaneError, NetworkError
from multilane.types import NodeId, TopicPartition
from multilane.wire.compose_groups import read_assignment
from multilane.wire.messages import ApiKey
from multilane.wire.subscription import read_subscription

SESSION, HEARTBEAT, MAX_POLL = 10.0, 3.0, 20.0
QUIET = 600.0
VERSION = {ApiKey.JOIN_GROUP: 9, ApiKey.SYNC_GROUP: 5, ApiKey.HEARTBEAT: 4, ApiKey.LEAVE_GROUP: 5}


class World:
    """The coordinator, the cluster and the time that all members share."""

    def __init__(self, strategy: Sequence[str]) -> None:
        self.strategy = strategy
        self.now = 0.0
        self.group = ClassicGroup()
        self.topics = {"t": 3, "u": 2}
        self.cluster = picture(self.topics)
        self.processes: list[Process] = []

    def spin(self) -> None:
        """Let everybody act until nobody has anything to say at this moment."""
        for _ in range(200):
            acted = False
            for process in self.processes:
                acted |= process.act()
                self.check()
            if not acted:
                for process in self.processes:
                    gone = process.poll_activity.idle(self.now) > MAX_POLL + COORDINATOR_WAIT
                    assert process.frozen or not gone or process.member.identity is None, "nobody reads for it"
                return
        raise AssertionError("they never come to rest")

    def check(self) -> None:
        """No two members that the coordinator believes in have a partition at the same time: eager ones within one
        generation, cooperative ones at all. But a static member that does not come to a rebalance in time keeps its
        seat, and the group goes on without it: the protocol has no better."""
        owner: dict[TopicPartition, str] = {}
        for process in self.processes:
            assert process.held == process.member.owned
            identity = process.member.identity
            if identity is None or identity.member_id not in self.group.seats:
                continue
            if identity.epoch != self.group.generation and (identity.instance_id or not process.cooperative):
                continue
            for partition in process.held:
                other = owner.setdefault(partition, process.name)
                assert other == process.name, f"{partition} is owned by {other} and {process.name}"

    def pass_time(self, seconds: float) -> None:
        """As the loops do: asleep until the next time that somebody named."""
        end = self.now + seconds
        self.spin()
        for _ in range(20_000):
            if self.now >= end:
                return
            waits = [p.wait for p in self.processes if not p.frozen]
            pending = [self.now + 0.05] if any(p.has_news for p in self.processes) else []
            wake = min([end, self.group.next_timer(), *(self.now + w for w in waits), *pending])
            self.now = max(wake, self.now + 0.001)
            self.group.advance(self.now)
            for process in self.processes:
                process.hear_late_answers()
            self.spin()
        raise AssertionError("time does not pass")


class Process:
    """A membership, its application and its way to the coordinator."""

    def __init__(self, world: World, name: str, instance: str | None, topics: frozenset[str]) -> None:
        self.world = world
        self.name = name
        self.frozen = False
        self.slow = False  # the application does not finish its steps
        self.away = False  # and does not even poll
        self.faults: list[str] = []
        self.errors: list[MultilaneError] = []
        self.step: RebalanceStep | None = None
        self.held: frozenset[TopicPartition] = frozenset()  # by what the application was told
        self.wait = 0.0
        self._node: NodeId | None = None
        self._looking = False
        self._late: list[tuple[UnsentRequest, Any]] = []
        self._open: set[UnsentRequest] = set()
        self._line: UnsentRequest | None = None  # what the broker has of us on the connection that waits
        self.poll_activity = PollActivity(world.now)
        self.poll_activity.is_polling = True
        chosen = [find_assignor(a) for a in world.strategy]
        self.cooperative = all(a.cooperative for a in chosen)
        config = group_config(
            instance, world.strategy, session_timeout=SESSION, heartbeat_interval=HEARTBEAT, max_poll_interval=MAX_POLL
        )
        self.member = ClassicMembership(
            MemberPolicy(config, BACKOFF, None, name),
            self.poll_activity,
            self,
            MemberListeners(lambda: world.cluster, lambda: None, self.on_step, self.errors.append, self.on_hang_up),
            chosen,
        )
        self.subscribe(topics)

    # --- Coordinators ------------------------------------------------------------------------------------------------

    def of(self, group: str) -> NodeId | None:
        self._looking = self._node is None
        return self._node

    def forget(self, group: str, node: NodeId) -> None:
        if self._node == node:
            self._node = None

    def last_error(self, group: str) -> MultilaneError | None:
        return NetworkError("no broker answers")

    # --- the application ---------------------------------------------------------------------------------------------

    def on_step(self, step: RebalanceStep) -> None:
        assert self.step is None, "two steps are open"
        self.step = step
        if step.change is Change.ASSIGNED:
            assert not step.partitions & self.held, "told to begin with what it has"
            self.held |= step.partitions
        else:
            assert step.partitions, "told to give up nothing"
            assert step.partitions <= self.held, "told to give up what it does not have"
        if step.change is Change.REVOKED and self.cooperative:
            assert not step.partitions & self.assigned(), "told to give up what is still its own"

    def assigned(self) -> frozenset[TopicPartition]:
        """What the coordinator has for this member in its present generation, as far as it is subscribed to."""
        identity, group = self.member.identity, self.world.group
        seat = None if identity is None else group.seats.get(identity.member_id)
        if seat is None or identity is None or identity.epoch != group.generation or group.phase is not Phase.STABLE:
            return frozenset()
        wanted = self.member._wanted.topics
        return frozenset(p for p in read_assignment(seat.assignment) if p.topic in wanted)

    def finish_step(self) -> None:
        step, self.step = self.step, None
        if step is None:
            return
        if step.change is not Change.ASSIGNED:
            self.held -= step.partitions
        self.member.step_done(step.ticket, self.world.now)

    def subscribe(self, topics: frozenset[str]) -> None:
        self.member.subscribe(Subscription(topics), self.world.now)

    def suffer(self, trouble: str) -> None:
        if trouble == "frozen":
            self.frozen = True
        elif trouble == "slow":
            self.slow = True
        elif trouble == "away":
            self.away, self.poll_activity.is_polling = True, False
        else:
            self.faults += [trouble, "none", trouble]

    def recover(self) -> None:
        self.frozen = self.slow = self.away = False
        self.poll_activity.is_polling = True
        self.faults.clear()

    def leave(self) -> None:
        self.held, self.step = frozenset(), None
        self.errors.clear()
        self.member.leave(lambda: None, self.world.now)

    # --- the network -------------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        return self.step is not None and not self.slow and not self.away

    @property
    def has_news(self) -> bool:
        return bool(self._late) or self._looking

    def act(self) -> bool:
        """One turn of its loop; whether anything happened."""
        if self.frozen:
            return False
        if not self.away:
            self.poll_activity.last = self.world.now
        if self.is_busy:
            self.finish_step()
        before = self.member.state
        polled = self.member.poll(self.world.now)
        self.wait = polled.wait
        for request in polled.requests:
            self.check(request)
            self.send(request)
        return bool(polled.requests) or self.member.state is not before or self.is_busy

    def check(self, request: UnsentRequest) -> None:
        if request.api is not ApiKey.JOIN_GROUP:
            return
        said = request.build(9)
        claimed = frozenset(read_subscription(said.protocols[0].metadata).owned)
        assert claimed == self.held, "the group is told something else than the truth"
        if self.member.identity is None:
            assert not self.held, "a member joins anew and has not lost what it had"
        if not self.cooperative:
            assert not self.held, "an eager member joins with its hands full"

    def send(self, request: UnsentRequest) -> None:
        fault = self.faults.pop(0) if self.faults else "none"
        if request.channel != CONTROL:
            assert self._line is None, "a request waits behind one that waits for others"
            self._line = None if fault in ("before", "after") else request
        self._open.add(request)
        if fault != "before":
            group = self.world.group
            if request.node == group.node:
                group.ask(request.api, request.build(VERSION[request.api]), lambda a: self.answer(request, a, fault))
            else:
                self.answer(request, response(request.api, error_code=NOT_COORDINATOR), fault)
        if fault in ("before", "after") and self._closed(request):
            request.on_failure(NetworkError("lost"), self.world.now)

    def answer(self, request: UnsentRequest, told: Any, fault: str) -> None:
        if fault == "late" or self.frozen:
            self._late.append((request, told))
        elif fault != "after" and self._closed(request):
            request.on_response(told, self.world.now)

    def _closed(self, request: UnsentRequest) -> bool:
        """Exactly one answer is heard, and none after the connection was given up."""
        if self._line is request:
            self._line = None
        if request in self._open:
            self._open.discard(request)
            return True
        return False

    def hear_late_answers(self) -> None:
        if self.frozen:
            return
        if self._looking:
            self._node, self._looking = NodeId(self.world.group.node), False
        late, self._late = self._late, []
        for request, told in late:
            if self._closed(request):
                request.on_response(told, self.world.now)

    def on_hang_up(self, owner: str) -> None:
        assert owner == f"join-{self.name}"
        if self._line is not None:
            self._open.discard(self._line)
            self._line = None


SECONDS = st.sampled_from([0.02, 1.0, 4.0, 12.0, 25.0, 25.0])
PLACES = st.integers(0, 3)
WISHES = st.sampled_from([frozenset("t"), frozenset("u"), frozenset("tu"), frozenset("tu")])
TROUBLES = st.sampled_from(["frozen", "slow", "away", "before", "after", "late"])


class Members(RuleBasedStateMachine):
    strategy: Sequence[str] = ("range",)
    instances: Sequence[str | None] = (None,)

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.strategy)
        self.names = itertools.count()

    def pick(self, index: int) -> Process | None:
        processes = self.world.processes
        return processes[index % len(processes)] if processes else None

    def start(self, instance: int, topics: frozenset[str]) -> None:
        name = self.instances[instance % len(self.instances)]
        self.world.processes.append(Process(self.world, f"p{next(self.names)}", name, topics))
        self.world.spin()

    @initialize(wishes=st.lists(WISHES, min_size=2, max_size=4))
    def some_are_there(self, wishes):
        for place, topics in enumerate(wishes):
            self.start(place, topics)
        self.world.pass_time(5.0)

    @precondition(lambda self: len(self.world.processes) < 4)
    @rule(instance=PLACES, topics=WISHES, seconds=SECONDS)
    def one_more(self, instance, topics, seconds):
        self.start(instance, topics)
        self.world.pass_time(seconds)

    @rule(
        who=st.dictionaries(PLACES, TROUBLES, max_size=3), kick=st.none() | PLACES, seconds=SECONDS, lasts=st.booleans()
    )
    def troubles(self, who, kick, seconds, lasts):
        """Some are stopped, slow, away or badly connected, for a time or until further notice; and one wants a
        rebalance."""
        for place, trouble in who.items():
            process = self.pick(place)
            if process is not None:
                process.suffer(trouble)
        process = None if kick is None else self.pick(kick)
        if process is not None:
            process.member.rejoin("a kick", self.world.now)
        self.world.pass_time(seconds)
        if not lasts:
            for process in self.world.processes:
                process.recover()
            self.world.spin()

    @rule(index=PLACES, seconds=SECONDS)
    def the_application_is_away(self, index, seconds):
        """With max.poll.interval.ms over in the middle of a rebalance, or not."""
        process = self.pick(index)
        if process is not None:
            process.suffer("away")
            process.member.rejoin("a kick", self.world.now)
        self.world.pass_time(seconds)

    @rule(seconds=SECONDS)
    def the_coordinator_moves(self, seconds):
        self.world.group.move()
        self.world.pass_time(seconds)

    @rule(index=PLACES, seconds=SECONDS)
    def killed(self, index, seconds):
        victim = self.pick(index)
        if victim is not None:
            victim.frozen = True  # what is on its way to it finds nobody
            self.world.processes.remove(victim)
        self.world.pass_time(seconds)

    @rule(index=PLACES, comes_back=st.booleans(), seconds=SECONDS)
    def leaves(self, index, comes_back, seconds):
        process = self.pick(index)
        if process is not None:
            process.leave()
            if comes_back:
                process.subscribe(frozenset("tu"))
        self.world.pass_time(seconds)

    @rule(index=PLACES, topics=WISHES, seconds=SECONDS)
    def subscribes(self, index, topics, seconds):
        process = self.pick(index)
        if process is not None:
            process.subscribe(topics)
        self.world.pass_time(seconds)

    @precondition(lambda self: sum(self.world.topics.values()) < 9)
    @rule(topic=st.sampled_from(["t", "u"]), seconds=SECONDS)
    def grows(self, topic, seconds):
        self.world.topics[topic] += 1
        self.world.cluster = picture(self.world.topics)
        self.world.pass_time(seconds)

    def teardown(self):
        """The troubles are over: all comes to rest, and everything that is wanted is read by one."""
        world = self.world
        for process in world.processes:
            process.recover()
        world.pass_time(QUIET)
        if self.instances != (None,):
            # A static member that came back with another subscription was given what it had before, and nobody asked.
            for process in world.processes:
                process.member.rejoin("the end", world.now)
            world.pass_time(QUIET)
        for process in world.processes:
            assert process.member.state in (ClassicState.STABLE, ClassicState.OUTSIDE, ClassicState.FAILED)
            assert all(isinstance(error, InstanceFenced) for error in process.errors)
            assert (process.member.state is ClassicState.FAILED) == bool(process.errors)
        members = [p for p in world.processes if p.member.state is ClassicState.STABLE]
        assert all(p.held == p.assigned() for p in members)
        assert {p.member.identity.member_id for p in members} == set(world.group.seats)
        assert len({p.member.identity.epoch for p in members}) <= 1
        wanted = {
            TopicPartition(topic, number)
            for topic in frozenset().union(*(p.member._wanted.topics for p in members))
            for number in range(world.topics[topic])
        }
        assert sorted(partition for p in members for partition in p.held) == sorted(wanted)
        assert sum(p.member.is_leader for p in members) == (1 if members else 0)


def machine(strategy: Sequence[str], instances: Sequence[str | None] = (None,)) -> Any:
    case = type("Machine", (Members,), {"strategy": strategy, "instances": instances}).TestCase
    case.settings = settings(max_examples=40, stateful_step_count=15, suppress_health_check=[HealthCheck.too_slow])
    return case


STATIC = ("i1", "i2", None)
TestRange = machine(("range",))
TestSticky = machine(("sticky",))
TestCooperative = machine(("cooperative-sticky",))
TestOnTheWayToCooperative = machine(("cooperative-sticky", "range"))
TestStaticRange = machine(("range",), STATIC)
TestStaticCooperative = machine(("cooperative-sticky",), STATIC)


@pytest.mark.parametrize("strategy", [("range",), ("cooperative-sticky",)])
def test_the_model_lets_a_group_come_together(strategy):
    world = World(strategy)
    world.processes += [Process(world, f"p{n}", None, frozenset("t")) for n in range(3)]
    world.pass_time(30.0)
    assert [len(p.held) for p in world.processes] == [1, 1, 1]
    assert world.group.phase is Phase.STABLE
    assert not math.isinf(world.group.next_timer())
