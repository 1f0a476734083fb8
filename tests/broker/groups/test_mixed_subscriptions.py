"""Members of one group that read different topics, as `sharing: same-topic` makes them, with other clients among them.

Whoever leads a classic group has to know the topics of all, also those that it does not read itself.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest

from broker.app.conftest import running
from broker.group_members import (
    COOPERATIVE,
    KIP_848,
    KIP_848_RANGE,
    Member,
    fill,
    new_group,
    partitions_of,
)
from broker.group_processes import AiokafkaMember, JavaMember, LibrdkafkaMember
from broker.reading import Deadline
from lane_world import until
from multilane import TopicPartition
from multilane.app.app import App
from multilane.client.group.assignors import find_assignor
from multilane.dev.kafka import KafkaCluster
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker, pytest.mark.cluster]

PARTITIONS = 4


class OurMember(Member):
    """Ours, in the form of the others."""

    def __init__(self, kafka: KafkaCluster, group: str, topic: str, variant: str) -> None:
        super().__init__(kafka, group, [topic], variant)

    def __enter__(self) -> OurMember:
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.close(5)

    def end(self) -> None:
        self.close()


class MixedGroup:
    """Each member reads one topic. Ours are polled here; the others poll themselves."""

    def __init__(self, kafka: KafkaCluster, stack: ExitStack, variant: str) -> None:
        self.kafka, self.group, self.variant = kafka, new_group(), variant
        self.members: list[tuple[str, Any]] = []  # with the topic that each reads
        self._stack = stack

    def join(self, kind: type, topic: str) -> Any:
        member = self._stack.enter_context(kind(self.kafka, self.group, topic, self.variant))
        self.members.append((topic, member))
        return member

    def leave(self, member: Any) -> None:
        self.members = [one for one in self.members if one[1] is not member]
        member.end()

    def settle(self) -> None:
        """Every partition of a topic that somebody reads has one owner, who reads it; none of its readers has more than
        its share."""
        deadline = Deadline(60.0)
        while not self._is_settled():
            assert not deadline.over, f"starved: {self}"
            for _, member in self.members:
                if isinstance(member, OurMember):
                    member.poll(0.02)

    def _is_settled(self) -> bool:
        for topic in {topic for topic, _ in self.members}:
            shares = [sorted(member.assignment) for read, member in self.members if read == topic]
            sizes = [len(share) for share in shares]
            if sorted(p for share in shares for p in share) != partitions_of(topic, PARTITIONS):
                return False
            if max(sizes) - min(sizes) > 1:
                return False
        return True

    def read_everything(self, ends: dict[TopicPartition, int]) -> None:
        deadline = Deadline(60.0)
        while not all(self._read(p) >= set(range(end)) for p, end in ends.items()):
            assert not deadline.over, f"not read: {self}"
            for _, member in self.members:
                if isinstance(member, OurMember):
                    member.poll(0.02)

    def _read(self, partition: TopicPartition) -> set[int]:
        return {o for _, member in self.members for o in list(member.offsets.get(partition, ()))}

    def __str__(self) -> str:
        return "; ".join(f"{type(m).__name__} of {topic} {sorted(m.assignment)}" for topic, m in self.members)


OF_VARIANT = {
    "range": (OurMember, JavaMember, LibrdkafkaMember, AiokafkaMember),
    "roundrobin": (OurMember, JavaMember, LibrdkafkaMember, AiokafkaMember),
    "sticky": (OurMember, JavaMember, AiokafkaMember),  # librdkafka has no eager one of that name
    COOPERATIVE: (OurMember, JavaMember, LibrdkafkaMember),
    KIP_848: (OurMember, JavaMember, LibrdkafkaMember),
    KIP_848_RANGE: (OurMember, JavaMember, LibrdkafkaMember),
}
CASES = [(variant, first) for variant, kinds in OF_VARIANT.items() for first in kinds]


@pytest.mark.parametrize(("variant", "first"), CASES, ids=[f"{variant}-{first.__name__}" for variant, first in CASES])
def test_a_leader_of_any_kind_starves_no_topic_that_it_does_not_read(kafka, topic, variant, first):
    """The first that joins leads, and reads one topic alone; ours read two others, and one that it reads too."""
    with ExitStack() as stack:
        group = MixedGroup(kafka, stack, variant)
        topics = [topic(PARTITIONS) for _ in range(3)]
        partitions = [p for name in topics for p in partitions_of(name, PARTITIONS)]
        leader = group.join(first, topics[0])
        group.settle()
        for name in (topics[1], topics[2], topics[0], topics[1]):
            group.join(OurMember, name)
        group.settle()
        group.read_everything(fill(kafka, partitions, 0, 10))
        group.leave(leader)
        group.settle()


class OwnTopicsOnly:
    """A leader that divides the topics that it reads itself, as some clients did. It has the name of a usual one."""

    name = "range"
    cooperative = False

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def assign(self, members: Any, topics: Any) -> dict[str, tuple[TopicPartition, ...]]:
        return find_assignor("range").assign(members, {n: t for n, t in topics.items() if n == self._topic})

    def user_data(self, owned: Any, generation: int) -> bytes:
        return b""


async def test_a_leader_that_overlooks_topics_is_reported_with_the_triggers_that_starve(
    kafka, topic, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr("multilane.runtime.starvation_watch.PATIENCE", 0.5)
    group, topics = new_group(), [topic(PARTITIONS) for _ in range(2)]
    leader = Member(kafka, group, [topics[0]], "range", partition_assignment_strategy=OwnTopicsOnly(topics[0]))
    try:
        while len(leader.assignment) < PARTITIONS:
            leader.poll(0.02)
        each = {"groupId": group, "name": topics[1], "cluster": "main", "sharing": "same-topic"}
        cluster = {
            "clientId": "test",
            "brokers": kafka.bootstrap(),
            "properties": {"group.protocol": "classic", "partition.assignment.strategy": "range"},
        }
        path = tmp_path / "multilane.yaml"
        path.write_text(json.dumps({"clusters": {"main": cluster}, "consumers": {"index": each, "mail": each}}))
        app = App(path)
        for name in ("index", "mail"):

            @app.listener(name)
            async def handle(record: Record) -> None:
                raise AssertionError("this group gives it nothing")

        async with running(app) as task:

            def is_reported() -> bool:
                leader.poll(0.02)
                return task.done() or "so index, mail get no records of them" in caplog.text

            await until(is_reported, 60)
        assert f"no member has {topics[1]}-0, {topics[1]}-1" in caplog.text
    finally:
        leader.close()
