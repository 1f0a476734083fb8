"""Members and brokers that die, hang and come back: nothing is lost, nobody needs help, and every close is in time."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from broker.flow import Flow
from broker.group_members import (
    COOPERATIVE,
    KIP_848,
    PROTOCOLS,
    LiveGroup,
    Member,
    committed_in,
    fill,
    new_group,
    partitions_of,
)
from broker.group_processes import ProcessMember
from broker.own_threads import own_threads
from broker.reading import CLOCK, Deadline
from broker.timers import SHORT_SESSIONS
from broker.topics import topic_factory
from multilane import AsyncConsumer, TopicPartition
from multilane.dev.kafka import KafkaCluster
from multilane.errors import CommitRefused, MultilaneError, OperationTimeout

pytestmark = [pytest.mark.broker, pytest.mark.cluster]

BOTH = (COOPERATIVE, KIP_848)
SCHEDULING = 0.5  # what a busy machine may add to a deadline


def frontier(offsets: set[int]) -> int:
    """The first that is missing."""
    return next(number for number in range(len(offsets) + 1) if number not in offsets)


# --- members ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", [pytest.param("sticky", marks=pytest.mark.long), *BOTH])
def test_the_partitions_of_a_killed_member_come_back_and_nothing_is_lost(kafka, topic, variant):
    name = topic(4)
    partitions = partitions_of(name, 4)
    brisk = {"auto_commit_interval_ms": 50}
    with LiveGroup(kafka, variant, [name], **brisk) as live_group, Flow(kafka, name, 4) as flow:
        [stays] = live_group.join()
        with ProcessMember(kafka, live_group.group, [name], variant, **brisk) as dies:
            live_group.until(lambda: len(stays.assignment) == len(dies.assignment) == 2)
            mine = dies.assignment
            live_group.until(lambda: all(len(dies.offsets.get(p, ())) > 50 for p in mine))
            dies.kill()

        def read() -> dict[TopicPartition, set[int]]:
            return {p: set(stays.offsets.get(p, ())) | set(dies.offsets.get(p, ())) for p in partitions}

        delivered, committed = read(), committed_in(kafka, live_group.group, partitions)
        assert all(committed[p] <= frontier(delivered[p]) for p in committed)
        live_group.until(lambda: stays.assignment == frozenset(partitions), timeout=15)
        flow.end()
        ends = {TopicPartition(name, number): len(values) for number, values in flow.acknowledged.items()}
        live_group.until(lambda: read() == {p: set(range(end)) for p, end in ends.items()})
        assert all(stays.offsets[p][-1] == ends[p] - 1 for p in mine)
        assert not stays.changes("lost")


@pytest.mark.parametrize("variant", [*PROTOCOLS, COOPERATIVE])
def test_a_member_that_hangs_loses_its_partitions_and_its_late_commits_count_for_nothing(
    kafka, topic, variant, eventually
):
    """It commits offset 1 over and over, and is stopped for longer than its session. The other goes on and commits the
    end; what the first still has to say when it wakes up must not undo that. It does not poll there, so that it hears
    of its loss only after it has asked for a commit."""
    name = topic(4)
    partitions = partitions_of(name, 4)
    ends = fill(kafka, partitions, 0, 20)
    with LiveGroup(kafka, variant, [name], enable_auto_commit=False) as live_group:
        [stays] = live_group.join()
        with ProcessMember(kafka, live_group.group, [name], variant, enable_auto_commit=False) as sleeps:
            live_group.until(lambda: len(stays.assignment) == len(sleeps.assignment) == 2)
            mine = sleeps.assignment
            sleeps.order("insist", 1)
            live_group.until(lambda: len(sleeps.told("committed")) > 5)
            sleeps.order("hold")
            live_group.until(lambda: sleeps.told("hold"))
            sleeps.freeze()
            live_group.until(lambda: stays.assignment == frozenset(partitions), timeout=15)
            stays.consumer.commit(ends)
            before = len(sleeps.told("insisted"))
            sleeps.thaw()
            live_group.until(lambda: len(sleeps.told("insisted")) > before + 1)  # one may have been half done
            sleeps.order("go")
            live_group.until(lambda: sleeps.told("lost"))
            assert {TopicPartition(*p) for p in sleeps.told("lost")[0]["partitions"]} == mine
            live_group.until(lambda: len(stays.assignment) == len(sleeps.assignment) == 2)
            assert committed_in(kafka, live_group.group, partitions) == ends
            refused = sleeps.told("refused")
            assert refused, "nobody said that the late commits were dropped"
            assert {told["why"] for told in refused} <= {CommitRefused.__name__, "CommitDuringRebalance"}
            assert not stays.changes("lost")


# --- brokers ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lone() -> Iterator[KafkaCluster]:
    """A node that tests may stop; they start it again."""
    with KafkaCluster(heap="256m", properties=SHORT_SESSIONS) as kafka:
        yield kafka


@pytest.fixture
def live_groups(request: pytest.FixtureRequest) -> Iterator[list[LiveGroup]]:
    made: list[LiveGroup] = []
    with ExitStack() as stack:
        stack.callback(lambda: [live_group.__exit__() for live_group in made])
        yield made


def all_until(live_groups: list[LiveGroup], goal, timeout: float = 60.0) -> None:
    deadline = Deadline(timeout)
    while not goal():
        assert not deadline.over, f"not within {timeout} s: {'; '.join(map(str, live_groups))}"
        for live_group in live_groups:
            live_group.turn()


def test_all_brokers_are_gone_for_a_while(lone, live_groups):
    """One group of each protocol. Were an offset reset, it would go to the end and records would be left out."""
    make = topic_factory(lone)
    places = [partitions_of(make(2), 2) for _ in BOTH]
    for variant, partitions in zip(BOTH, places, strict=True):
        live_group = LiveGroup(
            lone, variant, [partitions[0].topic], auto_offset_reset="latest", auto_commit_interval_ms=100
        )
        live_groups.append(live_group)
        live_group.join(2)
        live_group.settle(partitions)
        for member in live_group.members:  # from here on: "latest" has been looked up
            assert [member.consumer.position(p) for p in member.assignment] == [0]
    ends = {p: end for partitions in places for p, end in fill(lone, partitions, 0, 20).items()}
    all_until(
        live_groups,
        lambda: all(
            live_group.has_read({p: ends[p] for p in ps}) for live_group, ps in zip(live_groups, places, strict=True)
        ),
    )
    lone.kill(1)
    gone = Deadline(15)
    while not gone.over:
        for live_group in live_groups:
            live_group.turn()
    lone.start(1)
    ends = {p: end for partitions in places for p, end in fill(lone, partitions, 20, 20).items()}
    all_until(
        live_groups,
        lambda: all(
            live_group.has_read({p: ends[p] for p in ps}) for live_group, ps in zip(live_groups, places, strict=True)
        ),
    )
    for live_group, partitions in zip(live_groups, places, strict=True):
        assert live_group.offsets() == {p: set(range(40)) for p in partitions}
        live_group.settle(partitions)
        for member in live_group.members:
            member.consumer.commit()
        assert committed_in(lone, live_group.group, partitions) == {p: 40 for p in partitions}


def test_the_coordinator_is_killed_and_work_goes_on(cluster, cluster_topic, live_groups):
    """Both groups have the same coordinator. Nobody loses a partition, and commits go on at the next one."""
    names = [cluster_topic(2) for _ in BOTH]
    for variant, name in zip(BOTH, names, strict=True):
        live_group = LiveGroup(cluster, variant, [name], enable_auto_commit=False)
        live_groups.append(live_group)
        live_group.join(2)
        live_group.settle(partitions_of(name, 2))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
    coordinator = admin.list_topics("__consumer_offsets", timeout=10).topics["__consumer_offsets"].partitions[0].leader
    answers: list[BaseException | None] = []
    with ExitStack() as stack:
        flows = [stack.enter_context(Flow(cluster, name, 2)) for name in names]
        members = [member for live_group in live_groups for member in live_group.members]
        all_until(live_groups, lambda: all(member.count() > 20 for member in members))
        steps = [len(member.steps) for member in members]
        cluster.kill(coordinator)
        before = {id(member): member.count() for member in members}
        for member in members:
            member.consumer.commit_async(None, lambda _offsets, error: answers.append(error))
        all_until(live_groups, lambda: len(answers) == len(members))
        assert answers == [None] * len(members)
        all_until(live_groups, lambda: all(member.count() > before[id(member)] + 100 for member in members))
        for member in members:
            member.consumer.commit()
        for flow in flows:
            flow.end()
    for live_group, name, flow in zip(live_groups, names, flows, strict=True):
        ends = {TopicPartition(name, number): len(values) for number, values in flow.acknowledged.items()}
        live_group.until(lambda live_group=live_group, ends=ends: live_group.has_read(ends))
        for member in live_group.members:
            assert all(offsets == list(range(ends[p])) for p, offsets in member.offsets.items())
            member.consumer.commit()
        assert committed_in(cluster, live_group.group, list(ends)) == ends
    assert [len(member.steps) for member in members] == steps


# --- closing ---------------------------------------------------------------------------------------------------------


def sockets() -> int:
    found = 0
    for fd in Path("/proc/self/fd").iterdir():
        try:
            found += os.readlink(fd).startswith("socket:")
        except OSError:  # the directory's own
            continue
    return found


def test_close_is_in_time_whatever_the_brokers_do(lone, eventually):
    """Members at various points of their lives, while every broker hangs."""
    choose = random.Random(4)  # noqa: S311
    name = topic_factory(lone)(12)
    fill(lone, partitions_of(name, 12), 0, 100)
    before = sockets()
    groups = {variant: new_group() for variant in BOTH}
    members = []
    for number in range(12):
        variant = BOTH[number % 2]
        member = Member(lone, groups[variant], [name], variant, auto_commit_interval_ms=10)
        members.append(member)
        for _ in range(choose.randrange(25)):
            for other in members:
                other.poll(0.005)
    patient = next(member for member in members if member.assignment)
    refused: list[MultilaneError] = []
    took: list[float] = []

    def insist(change: str, partitions: frozenset[TopicPartition]) -> None:
        try:
            patient.consumer.commit(dict.fromkeys(partitions, 1))
        except (OperationTimeout, CommitRefused) as error:
            refused.append(error)

    patient.on_step = insist
    lone.pause(1)
    try:
        for member in members:
            for partition in member.assignment:
                member.consumer.commit_async({partition: 1})
            begin = CLOCK.monotonic()
            member.consumer.close(0.3)
            took.append(CLOCK.monotonic() - begin)
        assert refused
        assert max(took) < 0.3 + SCHEDULING, took
        eventually(lambda: not own_threads())
        eventually(lambda: sockets() <= before)
    finally:
        lone.resume(1)


async def test_so_is_close_in_an_event_loop(lone):
    name = topic_factory(lone)(1)
    usual = {"bootstrap.servers": lone.bootstrap(), "auto.offset.reset": "earliest"}
    consumers = [
        AsyncConsumer({**usual, "group.id": new_group(), "group.protocol": p}) for p in ("classic", "consumer")
    ]
    for consumer in consumers:
        consumer.subscribe([name])
        deadline = Deadline(30)
        while not consumer.assignment:
            deadline.check("joining")
            await consumer.poll(0.05)
    lone.pause(1)
    try:
        for consumer in consumers:
            begin = CLOCK.monotonic()
            await consumer.close(0.3)
            assert CLOCK.monotonic() - begin < 0.3 + SCHEDULING
    finally:
        lone.resume(1)
