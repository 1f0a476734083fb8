"""Several members under KIP-848 against a coordinator that does what Kafka's does, in any order, with anything lost."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from consumer_group import Group
from consumer_harness import Harness, T, U, picture
from multilane.client.group.consumer_protocol.states import MEMBER, MemberState
from multilane.client.group.membership import Change, RebalanceStep, Subscription
from multilane.errors import NetworkError, broker_error
from multilane.types import NodeId, TopicPartition

MAX_POLL = 60.0
SIZES = {"t": 5, "u": 3}
NAMES = {T: "t", U: "u"}
PARTS = {n: frozenset((i, p) for p in range(SIZES[n])) for i, n in NAMES.items()}
ALL = frozenset(TopicPartition(n, p) for n, size in SIZES.items() for p in range(size))
SUBSCRIPTIONS = [("t",), ("u",), ("t", "u")]


class App(Harness):
    """A consumer: its membership, its application, and its wire to the coordinator."""

    def __init__(self, group: Group) -> None:
        super().__init__(max_poll_interval=MAX_POLL)
        self.group = group
        self.node = NodeId(group.node)
        self.cluster = picture({})
        self.open: RebalanceStep | None = None
        self.holds: frozenset[TopicPartition] = frozenset()
        self.assigned: frozenset[TopicPartition] = frozenset()  # in the newest answer that arrived
        self.is_live = True
        self.member._reconciler._steps._send = self.told

    def told(self, step: RebalanceStep) -> None:
        assert self.open is None, "one step at a time"
        self.open = step
        match step.change:
            case Change.ASSIGNED:
                assert not step.partitions & self.holds
                assert step.partitions <= self.assigned
                self.holds |= step.partitions
            case Change.REVOKED:
                assert step.partitions
                assert step.partitions <= self.holds
                assert not step.partitions & self.assigned, "what is kept never stops"
            case Change.LOST:
                assert step.partitions == self.holds
                assert self.holds
                assert self.member.identity is None

    def work(self) -> None:
        step, self.open = self.open, None
        if step is not None:
            if step.change is not Change.ASSIGNED:
                self.holds -= step.partitions
            self.member.step_done(step.ticket, self.now)

    def turn(self, now: float) -> None:
        for request in self.poll(now):
            said = request.build(1)
            if said.member_epoch == 0:
                assert not self.holds, "what was lost is told before joining again"
            elif said.topic_partitions is not None:
                told = {TopicPartition(NAMES[t.topic_id], n) for t in said.topic_partitions for n in t.partitions}
                assert told == self.holds, "what is acknowledged is what the application was told"

    def forget(self, group: str, node: NodeId) -> None:
        self.node = None

    def deliver(self, fate: str) -> None:
        if not self.requests:
            return
        request = self.requests.pop(0)
        if fate != "lost before":
            response = self.group.heartbeat(request.build(1), int(request.node or 0), self.now)
            if fate == "answered":
                self._note(response)
                request.on_response(response, self.now)
                return
        request.on_failure(NetworkError(fate), self.now)

    def _note(self, response: Any) -> None:
        if (
            not int(response.error_code)
            and response.assignment is not None
            and self.member.state is not MemberState.LEAVING
        ):
            told = response.assignment.topic_partitions
            self.assigned = frozenset(TopicPartition(NAMES[t.topic_id], n) for t in told for n in t.partitions)

    @property
    def is_member(self) -> bool:
        """To the coordinator and to itself."""
        known = self.member.identity
        return self.is_live and known is not None and known.member_id in self.group.members


class Members(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.group = Group(PARTS)
        self.apps: list[App] = []

    @initialize()
    def begin(self) -> None:
        self.start(("t", "u"), 0.0)
        self.start(("t", "u"), 0.0)

    def start(self, topics: tuple[str, ...], now: float) -> None:
        app = App(self.group)
        app.now = now
        self.apps.append(app)
        app.member.subscribe(Subscription(frozenset(topics)), now)

    def one(self, number: int) -> App:
        live = [a for a in self.apps if a.is_live]
        return live[number % len(live)]

    @precondition(lambda self: sum(a.is_live for a in self.apps) < 4)
    @rule(topics=st.sampled_from(SUBSCRIPTIONS))
    def another(self, topics: tuple[str, ...]) -> None:
        self.start(topics, self.now)

    @rule(number=st.integers(0, 3))
    def turn(self, number: int) -> None:
        self.one(number).turn(self.now)

    @rule(number=st.integers(0, 3), fate=st.sampled_from(["answered"] * 4 + ["lost before", "lost after"]))
    def deliver(self, number: int, fate: str) -> None:
        self.one(number).deliver(fate)

    @rule(number=st.integers(0, 3))
    def work(self, number: int) -> None:
        self.one(number).work()

    @rule(rounds=st.integers(1, 6))
    def all_is_well(self, rounds: int) -> None:
        for _ in range(rounds):
            for app in self.apps:
                if app.is_live:
                    self._round(app)

    def _round(self, app: App) -> None:
        app.cluster = picture(SIZES) if len(app.cluster.topics) < len(SIZES) else app.cluster
        app.node = app.node or NodeId(self.group.node)
        app.turn(self.now)
        while app.requests:
            app.deliver("answered")
            self.never_two_owners()
        app.work()
        self.never_two_owners()

    @rule(seconds=st.sampled_from([0.05, 0.5, 2.0, 5.0, 5.0, 20.0, 50.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.group.expire(self.now)
        for app in self.apps:
            app.now = self.now

    @rule(number=st.integers(0, 3), topics=st.sampled_from([["t"], ["u"], ["t", "u"]]))
    def metadata_comes(self, number: int, topics: list[str]) -> None:
        app = self.one(number)
        app.cluster = picture({t: SIZES[t] for t in {*app.cluster.topics, *topics}})

    @rule(number=st.integers(0, 3))
    def coordinator_found(self, number: int) -> None:
        self.one(number).node = NodeId(self.group.node)

    @rule()
    def coordinator_moves(self) -> None:
        self.group.node = 3 - self.group.node

    @rule(number=st.integers(0, 3), topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, number: int, topics: tuple[str, ...]) -> None:
        self.one(number).member.subscribe(Subscription(frozenset(topics)), self.now)

    @precondition(lambda self: sum(a.is_live for a in self.apps) > 1)
    @rule(number=st.integers(0, 3))
    def kill(self, number: int) -> None:
        self.one(number).is_live = False

    @rule(number=st.integers(0, 3))
    def leave(self, number: int) -> None:
        app = self.one(number)
        app.holds, app.open = frozenset(), None
        app.leave()

    @rule(number=st.integers(0, 3))
    def a_commit_is_fenced(self, number: int) -> None:
        app = self.one(number)
        if app.member.identity is not None and app.member.identity.member_id not in self.group.members:
            app.member.fenced(broker_error(25), self.now)

    @rule(number=st.integers(0, 3), is_polling=st.booleans())
    def application(self, number: int, is_polling: bool) -> None:
        app = self.one(number)
        app.poll_activity.is_polling, app.poll_activity.last = is_polling, self.now

    @invariant()
    def never_two_owners(self) -> None:
        owners: dict[TopicPartition, App] = {}
        for app in self.apps:
            assert app.holds == app.member.owned or not app.is_live
            assert app.failures == []
            if app.is_member:
                for partition in app.holds:
                    assert partition not in owners, f"{partition} has two owners"
                    owners[partition] = app

    def teardown(self) -> None:
        """Everybody lives in peace for a while: the group settles, and everything is read."""
        for app in self.apps:
            app.poll_activity.is_polling = True
        for _ in range(80):
            self.time_passes(2.5)
            for app in self.apps:
                if app.is_live:
                    self._round(app)
        joined = [a for a in self.apps if a.is_live and a.member.state is not MemberState.UNSUBSCRIBED]
        assert all(a.member.state is MemberState.STABLE for a in joined)
        assert {m for m in self.group.members} == {a.member.identity.member_id for a in joined}
        for app in joined:
            assert app.member.state in MEMBER
            held = self.group.members[app.member.identity.member_id].assigned
            assert app.holds == {TopicPartition(NAMES[i], n) for i, n in held}
            assert app.wanted == set()
        topics = {t for a in joined for t in a.member._fields.subscription.topics}
        assert {p for a in joined for p in a.holds} == {p for p in ALL if p.topic in topics}
        assert sum(len(a.holds) for a in joined) == len({p for a in joined for p in a.holds})


Members.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestMembers = Members.TestCase
