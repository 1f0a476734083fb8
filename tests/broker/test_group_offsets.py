"""Coordinators, commits and committed offsets against real brokers, and against what another client reads there.

The managers run in a loop of the test's own: the same delegate and metadata as on a network thread, no consumer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import TopicPartition as Place

from multilane.client.calls import Call, CallManager
from multilane.client.group.commits import CommitListeners, CommitManager, CommitPolicy
from multilane.client.group.committed import CommittedListeners, CommittedManager
from multilane.client.group.coordinators import CoordinatorListeners, CoordinatorManager
from multilane.client.group.membership import Identity
from multilane.client.metadata import MetadataListeners, MetadataManager, MetadataPolicy
from multilane.client.net.delegate import ConnectionSetup, NetworkDelegate
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.resolver import Resolver
from multilane.client.net.wakeup import Wakeup
from multilane.clock import SystemClock
from multilane.config.connection import parse_connection
from multilane.errors import BrokerError, CommitRefused, MultilaneError
from multilane.metrics.observer import NO_OBSERVER
from multilane.types import LeaderEpoch, Offset, OffsetAndMetadata, TopicPartition
from multilane.wire.messages import ApiKey, request_type

CLOCK = SystemClock()
PATIENCE = 60.0


def at(offset: int, epoch: int = -1, metadata: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(Offset(offset), LeaderEpoch(epoch), metadata)


@dataclass
class Member:
    """One consumer's managers and what they ask about it."""

    commits: CommitManager
    committed: CommittedManager
    fenced: list[MultilaneError]
    identity: Identity | None = None
    owned: frozenset[TopicPartition] | None = None


class Loop:
    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        config = parse_connection({"bootstrap.servers": bootstrap})
        self.wakeup = Wakeup()
        self.backoff = RequestBackoff(0.05, 0.5)
        setup = ConnectionSetup(Resolver(_no_pool, self.wakeup.set, CLOCK.monotonic), None, None)
        self.delegate = NetworkDelegate(config, setup, self.wakeup, NO_OBSERVER)
        self.metadata = MetadataManager(
            MetadataPolicy(300.0, self.backoff, PATIENCE),
            MetadataListeners(
                on_cluster=lambda cluster: self.delegate.on_nodes(dict(cluster.nodes), CLOCK.monotonic())
            ),
        )
        self.metadata.add_interest(topics)
        self.calls = CallManager(self.backoff)
        self.refused: list[tuple[str, MultilaneError]] = []
        self.coordinators = CoordinatorManager(
            self.backoff,
            CoordinatorListeners(
                lambda: self.metadata.cluster,
                self.metadata.request_update,
                lambda group, error: self.refused.append((group, error)),
            ),
        )
        self.members: list[Member] = []
        self.sent: list[ApiKey] = []

    def member(self, group: str) -> Member:
        def listen(kind: Any, *more: Any) -> Any:
            return kind(lambda: self.metadata.cluster, self.metadata.request_update, lambda: made.identity, *more)

        fenced: list[MultilaneError] = []
        commits = CommitManager(
            group,
            self.coordinators,
            CommitPolicy(self.backoff, PATIENCE),
            listen(CommitListeners, lambda: made.owned, lambda error, _: fenced.append(error)),
        )
        reader = CommittedManager(
            group, self.coordinators, self.backoff, listen(CommittedListeners, lambda error: pytest.fail(str(error)))
        )
        made = Member(commits, reader, fenced)
        self.members.append(made)
        return made

    def until(self, condition: Callable[[], object]) -> None:
        deadline = CLOCK.monotonic() + PATIENCE
        while not condition():
            now = CLOCK.monotonic()
            assert now < deadline, "the brokers did not answer in time"
            polls = [self.metadata.poll(now), self.calls.poll(now)]
            polls += [m.poll(now) for each in self.members for m in (each.commits, each.committed)]
            polls.append(self.coordinators.poll(now))
            for poll in polls:
                for request in poll.requests:
                    self.sent.append(request.api)
                    self.delegate.add(request, now)
            self.delegate.poll(min(1.0, *(poll.wait for poll in polls)), CLOCK.monotonic)

    def result(self, future: Future[Any]) -> Any:
        self.until(future.done)
        return future.result(0)

    def commit(self, member: Member, offsets: dict[TopicPartition, OffsetAndMetadata]) -> Future[None]:
        future: Future[None] = Future()
        member.commits.commit(offsets, future, None, CLOCK.monotonic())
        return future

    def read(self, member: Member, *partitions: TopicPartition) -> Any:
        future: Future[Any] = Future()
        member.committed.committed(partitions, CLOCK.monotonic() + PATIENCE, future)
        return self.result(future)

    def join(self, group: str, topics: list[str]) -> Identity:
        """A member of a KIP-848 group. It sends no second heartbeat: a session lasts longer than these tests."""
        member_id = str(uuid.uuid4())
        kind = request_type(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
        beat = kind(
            group_id=group,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout=kind.__dataclass_fields__["rebalance_timeout"].default.__class__(seconds=60),
            subscribed_topic_names=tuple(topics),
            topic_partitions=(),
        )
        self.until(lambda: self.coordinators.of(group) is not None)
        future: Future[Any] = Future()
        self.calls.add(
            Call(
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                lambda _: beat,
                CLOCK.monotonic() + PATIENCE,
                future,
                self.coordinators.of(group),
                1,
                _heartbeat_error,
            )
        )
        return Identity(group, member_id, int(self.result(future).member_epoch), None, "consumer")

    def close(self) -> None:
        self.delegate.close()
        self.wakeup.close()


def _heartbeat_error(response: Any) -> MultilaneError | None:
    code = int(response.error_code)
    return BrokerError(code, "a heartbeat") if code else None


def _no_pool() -> Any:
    raise AssertionError("addresses are numbers here")


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def looping(kafka, topic):
    name = topic(partitions=3)
    loop = Loop(kafka.bootstrap(), [name])
    yield loop, [TopicPartition(name, n) for n in range(3)]
    loop.close()


def others_view(bootstrap: str, group: str, *partitions: TopicPartition) -> dict[TopicPartition, tuple[int, str]]:
    """What librdkafka reads of the group; -1001 where it finds nothing."""
    consumer = Librdkafka({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        told = consumer.committed([Place(p.topic, p.partition) for p in partitions], timeout=30)
        return {TopicPartition(p.topic, p.partition): (p.offset, p.metadata or "") for p in told}
    finally:
        consumer.close()


@pytest.mark.broker
def test_offsets_go_and_come_back_whole_and_others_read_them(kafka, looping, group):
    loop, (zero, one, two) = looping
    member = loop.member(group)
    assert loop.read(member, zero, one) == {zero: None, one: None}
    assert loop.result(loop.commit(member, {zero: at(5, 0, "a note"), one: at(0)})) is None
    assert loop.read(member, zero, one, two) == {zero: at(5, 0, "a note"), one: at(0), two: None}
    seen = others_view(kafka.bootstrap(), group, zero, one, two)
    assert seen == {zero: (5, "a note"), one: (0, ""), two: (-1001, "")}
    began: dict[TopicPartition, Any] = {}
    member.committed.want([zero, two], began.update, lambda tp, error: pytest.fail(f"{tp}: {error}"))
    loop.until(lambda: len(began) == 2)
    assert began == {zero: at(5, 0, "a note"), two: None}


@pytest.mark.broker
def test_a_hundred_commits_at_once_take_a_few_requests_and_end_with_the_last(looping, group):
    loop, (zero, one, _) = looping
    member = loop.member(group)
    futures = [loop.commit(member, {zero: at(n), one: at(1_000 - n)}) for n in range(100)]
    loop.until(lambda: loop.sent.count(ApiKey.OFFSET_COMMIT) == 1)
    futures += [loop.commit(member, {zero: at(n), one: at(1_000 - n)}) for n in range(100, 200)]
    loop.until(lambda: all(f.done() for f in futures))
    assert all(f.result(0) is None for f in futures)
    assert loop.sent.count(ApiKey.OFFSET_COMMIT) == 2
    assert loop.read(member, zero, one) == {zero: at(199), one: at(801)}


@pytest.mark.broker
def test_many_groups_are_found_with_one_request(looping):
    loop, (zero, _, _) = looping
    loop.until(lambda: loop.metadata.cluster.nodes)
    # The first group of a broker has to wait until all places for groups are made and loaded; so others go before.
    for _ in range(10):
        loop.sent.clear()
        early = [loop.commit(loop.member(f"group-{uuid.uuid4().hex[:10]}"), {zero: at(0)}) for _ in range(60)]
        loop.until(lambda early=early: all(f.done() for f in early))
        if loop.sent.count(ApiKey.FIND_COORDINATOR) == 1:
            break
    loop.sent.clear()
    members = [loop.member(f"group-{uuid.uuid4().hex[:10]}") for _ in range(20)]
    futures = [loop.commit(member, {zero: at(n)}) for n, member in enumerate(members)]
    loop.until(lambda: all(f.done() for f in futures))
    assert [f.result(0) for f in futures] == [None] * 20
    assert loop.sent.count(ApiKey.FIND_COORDINATOR) == 1
    assert [loop.read(m, zero)[zero] for m in members] == [at(n) for n in range(20)]


@pytest.mark.broker
def test_a_text_that_is_too_long_is_refused_by_name_and_the_rest_is_kept(looping, group):
    loop, (zero, one, _) = looping
    member = loop.member(group)
    future = loop.commit(member, {zero: at(5, metadata="x" * 5_000), one: at(7)})
    with pytest.raises(BrokerError, match=r"OFFSET_METADATA_TOO_LARGE.*-0 at 5.*offset\.metadata\.max\.bytes"):
        loop.result(future)
    assert loop.read(member, zero, one) == {zero: None, one: at(7)}


@pytest.mark.broker
def test_a_topic_that_does_not_exist_is_given_up_after_some_seconds(looping, group):
    loop, (zero, _, _) = looping
    member = loop.member(group)
    nowhere = TopicPartition(f"missing-{uuid.uuid4().hex[:8]}", 0)
    began = CLOCK.monotonic()
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        loop.result(loop.commit(member, {nowhere: at(1)}))
    assert CLOCK.monotonic() - began < 20.0
    assert loop.read(member, nowhere, zero) == {nowhere: None, zero: None}


@pytest.mark.broker
def test_a_member_of_a_kip_848_group(looping, group):
    loop, (zero, one, _) = looping
    member, stranger = loop.member(group), loop.member(group)
    member.identity, member.owned = loop.join(group, [zero.topic]), frozenset({zero})
    assert loop.result(loop.commit(member, {zero: at(5, 0)})) is None
    assert loop.read(member, zero) == {zero: at(5, 0)}
    with pytest.raises(CommitRefused, match=str(one)):  # the broker would take it
        loop.result(loop.commit(member, {one: at(5)}))
    with pytest.raises(CommitRefused, match=r"group\.id of their own"):
        loop.result(loop.commit(stranger, {one: at(6)}))
    assert (member.fenced, stranger.fenced) == ([], [])
    assert loop.read(stranger, zero, one) == {zero: at(5, 0), one: None}


@pytest.mark.broker
def test_a_member_that_the_group_does_not_have_is_reported_and_commits_nothing(looping, group):
    loop, (zero, _, _) = looping
    member, gone = loop.member(group), loop.member(group)
    member.identity, member.owned = loop.join(group, [zero.topic]), frozenset({zero})
    gone.identity, gone.owned = replace(member.identity, member_id="never-joined"), frozenset({zero})
    with pytest.raises(CommitRefused, match="UNKNOWN_MEMBER_ID"):
        loop.result(loop.commit(gone, {zero: at(9)}))
    assert len(gone.fenced) == 1
    assert loop.read(member, zero) == {zero: None}


@pytest.mark.broker
def test_a_commit_under_an_old_epoch_waits_for_the_newer_one(looping, group):
    loop, (zero, _, _) = looping
    member = loop.member(group)
    today = loop.join(group, [zero.topic])
    member.identity, member.owned = replace(today, epoch=today.epoch - 1), frozenset({zero})
    future = loop.commit(member, {zero: at(5)})
    answered = len(loop.sent)
    loop.until(lambda: len(loop.sent) > answered and member.commits._in_flight is None)
    assert not future.done()
    member.identity = today
    assert loop.result(future) is None
    assert loop.read(member, zero) == {zero: at(5)}


@pytest.mark.cluster
@pytest.mark.slow
def test_a_killed_coordinator_is_found_again_and_the_order_holds(cluster, cluster_topic, group):
    name = cluster_topic(partitions=1)
    place = TopicPartition(name, 0)
    loop = Loop(cluster.bootstrap(), [name])
    try:
        member = loop.member(group)
        loop.result(loop.commit(member, {place: at(1)}))
        first = loop.coordinators.of(group)
        assert first is not None
        cluster.kill(int(first))
        futures = [loop.commit(member, {place: at(n)}) for n in range(2, 50)]
        loop.until(lambda: all(f.done() for f in futures))
        assert [f.result(0) for f in futures] == [None] * len(futures)
        assert loop.coordinators.of(group) not in (None, first)
        assert loop.read(member, place) == {place: at(49)}
        assert loop.refused == []
    finally:
        loop.close()
