"""Groups whose members are different clients, and groups that change from one protocol to the other while they work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from broker.group_members import COOPERATIVE, KIP_848, Member, fill, new_group, partitions_of
from broker.group_processes import AiokafkaMember, JavaMember, LibrdkafkaMember
from broker.reading import Deadline
from multilane import Admin, TopicPartition
from multilane.dev.kafka import KafkaCluster

pytestmark = [pytest.mark.broker, pytest.mark.cluster]

PARTITIONS = 8


class OurMember(Member):
    """Ours, in the form of the others."""

    def __enter__(self) -> OurMember:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close(5)

    def end(self) -> None:
        self.close()


class Mixture:
    """Members of any kind. Ours are polled here; the others poll themselves."""

    def __init__(self, kafka: KafkaCluster, stack: ExitStack, topic: str) -> None:
        self.kafka, self.group, self.topic = kafka, new_group(), topic
        self.partitions = partitions_of(topic, PARTITIONS)
        self.members: list[Any] = []
        self.gone: list[Any] = []
        self._stack = stack

    def join(self, kind: type, variant: str) -> Any:
        topics = [self.topic] if kind is OurMember else self.topic
        member = self._stack.enter_context(kind(self.kafka, self.group, topics, variant))
        self.members.append(member)
        return member

    def leave(self, member: Any) -> None:
        self.members.remove(member)
        self.gone.append(member)
        member.end()

    def until(self, goal: Callable[[], object], timeout: float = 40.0) -> None:
        deadline = Deadline(timeout)
        ours = [member for member in self.members if isinstance(member, OurMember)]
        while not goal():
            assert not deadline.over, f"not within {timeout} s: {self}"
            for member in ours:
                member.poll(0.02)

    def settle(self) -> None:
        """Each has its share, and every partition one owner."""
        self.until(lambda: _is_even([member.assignment for member in self.members], self.partitions))

    def read_everything(self, ends: dict[TopicPartition, int]) -> None:
        self.until(lambda: all(self._read(p) >= set(range(end)) for p, end in ends.items()))

    def _read(self, partition: TopicPartition) -> set[int]:
        return {o for member in self.members + self.gone for o in list(member.offsets.get(partition, ()))}

    def __str__(self) -> str:
        return "; ".join(f"{type(m).__name__} {sorted(m.assignment)}" for m in self.members)


def _is_even(held: Sequence[Collection[TopicPartition]], partitions: Sequence[TopicPartition]) -> bool:
    sizes = [len(part) for part in held]
    everything = sorted(p for part in held for p in part)
    return everything == sorted(partitions) and max(sizes) - min(sizes) <= 1


ALL_FOUR = (OurMember, JavaMember, LibrdkafkaMember, AiokafkaMember)
MIXTURES = [
    ("range", ALL_FOUR),
    ("roundrobin", (JavaMember, AiokafkaMember, LibrdkafkaMember, OurMember)),
    ("sticky", (OurMember, JavaMember, AiokafkaMember)),  # librdkafka has no eager one of that name
    (COOPERATIVE, (OurMember, JavaMember, LibrdkafkaMember)),  # aiokafka has none
    (KIP_848, (OurMember, JavaMember, LibrdkafkaMember)),  # aiokafka has none
]


@pytest.mark.parametrize(("variant", "kinds"), MIXTURES, ids=[variant for variant, _ in MIXTURES])
def test_clients_of_every_kind_share_a_group(kafka, topic, variant, kinds):
    """The first that joins leads: ours once, another client once. It leaves at the end, and another has to."""
    with ExitStack() as stack:
        group = Mixture(kafka, stack, topic(PARTITIONS))
        fill(kafka, group.partitions, 0, 20)
        group.join(kinds[0], variant)
        group.settle()
        for kind in kinds[1:]:
            group.join(kind, variant)
        group.settle()
        group.leave(group.members[0])
        group.settle()
        ends = fill(kafka, group.partitions, 20, 20)
        group.read_everything(ends)


def test_a_group_changes_to_the_newer_protocol_member_by_member(kafka, topic):
    with ExitStack() as stack:
        group = Mixture(kafka, stack, topic(PARTITIONS))
        old = [group.join(OurMember, "range") for _ in range(2)]
        group.settle()
        ends = fill(kafka, group.partitions, 0, 20)
        group.read_everything(ends)
        for member in old:
            new = group.join(OurMember, KIP_848)
            group.settle()
            ends = fill(kafka, group.partitions, 0, 20)
            group.leave(member)
            group.settle()
            group.read_everything(ends)
            assert new.consumer.group_metadata().protocol == "consumer"
        assert not any(member.changes("lost") for member in old)
        for partition in group.partitions:  # all of them left in good order: nothing was read twice
            read = [o for member in group.members + group.gone for o in member.offsets.get(partition, ())]
            assert sorted(read) == list(range(60))


def test_a_group_changes_back_to_the_classic_protocol(kafka, topic):
    with ExitStack() as stack:
        group = Mixture(kafka, stack, topic(PARTITIONS))
        old = group.join(OurMember, KIP_848)
        group.settle()
        new = group.join(OurMember, "range")
        group.settle()
        group.leave(old)
        group.settle()
        ends = fill(kafka, group.partitions, 0, 20)
        group.read_everything(ends)
        assert new.consumer.group_metadata().protocol == "classic"


AUTO = "auto"


def _described(kafka: KafkaCluster, group: str) -> tuple[str, str, str]:
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        told = admin.describe_groups([group])[group]
        return told.type, told.state, told.assignor


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])  # of which ours has one by default
def test_auto_joins_a_live_classic_group_and_leaves_it_what_it_is(kafka, topic, assignor):
    with ExitStack() as stack:
        group = Mixture(kafka, stack, topic(PARTITIONS))
        group.join(LibrdkafkaMember, assignor)
        group.settle()
        ours = group.join(OurMember, AUTO)
        group.settle()
        assert ours.consumer.group_metadata().protocol == "classic"
        assert _described(kafka, group.group) == ("classic", "Stable", assignor)
        ends = fill(kafka, group.partitions, 0, 20)
        group.read_everything(ends)


def test_auto_takes_the_newer_protocol_in_a_classic_group_that_nobody_is_in(kafka, topic):
    with ExitStack() as stack:
        group = Mixture(kafka, stack, topic(PARTITIONS))
        group.join(OurMember, "range")
        group.settle()
        group.leave(group.members[0])
        assert _described(kafka, group.group)[:2] == ("classic", "Empty")
        ours = group.join(OurMember, AUTO)
        group.settle()
        assert ours.consumer.group_metadata().protocol == "consumer"


def test_group_protocol_consumer_converts_a_live_classic_group(kafka, topic):
    with ExitStack() as stack:
        group = Mixture(kafka, stack, topic(PARTITIONS))
        group.join(OurMember, "range")
        group.settle()
        group.join(OurMember, KIP_848)
        group.settle()
        assert _described(kafka, group.group)[0] == "consumer"
