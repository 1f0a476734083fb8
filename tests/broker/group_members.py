"""Members of groups as tests use them: consumers of ours that remember what they were told and what they read.

Members in this process are polled in turn by the test itself, so nothing happens between two polls that it does not
know of. Members that are to be killed or stopped are processes (`group_processes`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Any

from broker.produce import new_producer, numbered, send
from broker.reading import Deadline
from multilane import Blocks, Consumer, TopicPartition
from multilane.client.rebalance import RebalanceListener
from multilane.dev.kafka import KafkaCluster

EAGER = ("range", "roundrobin", "sticky")
COOPERATIVE = "cooperative-sticky"
KIP_848 = "consumer"
KIP_848_RANGE = "consumer-range"  # its other assignor; the brokers' default is uniform
VARIANTS = (*EAGER, COOPERATIVE, KIP_848)
INCREMENTAL = (COOPERATIVE, KIP_848)
PROTOCOLS = ("range", KIP_848)  # one of each, where the assignor does not matter

TURN = 0.01
Steps = list[tuple[str, frozenset[TopicPartition]]]


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def membership(variant: str) -> dict[str, object]:
    """The properties of a variant: an assignor of the classic protocol, KIP-848 or auto. Sessions are short."""
    if variant == "auto":
        return {}
    if variant == KIP_848:  # the brokers of the tests have short sessions themselves
        return {"group.protocol": "consumer"}
    if variant == KIP_848_RANGE:
        return {"group.protocol": "consumer", "group.remote.assignor": "range"}
    return {
        "group.protocol": "classic",
        "partition.assignment.strategy": variant,
        "session.timeout.ms": 3_000,
        "heartbeat.interval.ms": 300,
    }


class Member(RebalanceListener):
    """A consumer and its journal. `on_step(change, partitions)` may do what an application would in its listener."""

    def __init__(self, kafka: KafkaCluster, group: str, topics: Any, variant: str, **more: Any) -> None:
        observer = more.pop("observer", None)
        self.on_step: Callable[[str, frozenset[TopicPartition]], object] | None = more.pop("on_step", None)
        properties = {
            "bootstrap.servers": kafka.bootstrap(),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "request.timeout.ms": 3_000,
            **membership(variant),
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        self.steps: Steps = []
        self.held: frozenset[TopicPartition] = frozenset()
        self.offsets: dict[TopicPartition, list[int]] = {}
        self.consumer = Consumer(properties, observer=observer)
        self.consumer.subscribe(topics, self)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self.consumer.assignment

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._note("lost", partitions)

    def _note(self, change: str, partitions: frozenset[TopicPartition]) -> None:
        self.steps.append((change, partitions))
        self.held = self.held | partitions if change == "assigned" else self.held - partitions
        if self.on_step is not None:
            self.on_step(change, partitions)

    def poll(self, timeout: float = TURN) -> Blocks:
        """Everything that is handed out is written down, and is what the listener was last told to be ours."""
        blocks = self.consumer.poll(timeout)
        for block in blocks:
            partition = TopicPartition(block.topic, block.partition)
            assert partition in self.held, f"{partition} is handed out, and was given up: {self.steps}"
            self.offsets.setdefault(partition, []).extend(block.offsets.tolist())
        return blocks

    def count(self, partition: TopicPartition | None = None) -> int:
        return sum(len(offsets) for p, offsets in self.offsets.items() if partition in (None, p))

    def changes(self, change: str) -> list[frozenset[TopicPartition]]:
        return [partitions for told, partitions in self.steps if told == change]

    def close(self) -> None:
        self.consumer.close(10)


class LiveGroup:
    """Members that are polled in turn."""

    def __init__(self, kafka: KafkaCluster, variant: str, topics: Any, **usual: Any) -> None:
        self.kafka, self.variant, self.topics, self.usual = kafka, variant, topics, usual
        self.group = usual.pop("group", None) or new_group()
        self.members: list[Member] = []
        self.gone: list[Member] = []

    def __enter__(self) -> LiveGroup:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.consumer.close(2)

    def join(self, count: int = 1, **more: Any) -> list[Member]:
        usual = {"variant": self.variant, "topics": self.topics, **self.usual, **more}
        joined = [Member(self.kafka, self.group, **usual) for _ in range(count)]
        self.members += joined
        return joined

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        self.gone.append(member)
        member.close()

    def turn(self) -> None:
        for member in list(self.members):
            member.poll()

    def until(self, goal: Callable[[], object], timeout: float = 30.0) -> None:
        deadline = Deadline(timeout)
        while not goal():
            assert not deadline.over, f"not within {timeout} s: {self}"
            self.turn()

    def settle(self, partitions: Collection[TopicPartition], timeout: float = 30.0, *, even: bool = True) -> None:
        """Until every partition has one owner, and none of the members has more than its share."""
        self.until(lambda: is_shared(self.members, partitions, even=even), timeout)

    def offsets(self) -> dict[TopicPartition, set[int]]:
        """What was delivered to anybody."""
        found: dict[TopicPartition, set[int]] = {}
        for member in self.members + self.gone:
            for partition, offsets in member.offsets.items():
                found.setdefault(partition, set()).update(offsets)
        return found

    def has_read(self, ends: dict[TopicPartition, int]) -> bool:
        found = self.offsets()
        return all(len(found.get(p, ())) >= end for p, end in ends.items())

    def __str__(self) -> str:
        return "; ".join(f"{sorted(m.assignment)} {m.steps[-3:]} {m.count()}" for m in self.members)


def is_shared(members: Collection[Member], partitions: Collection[TopicPartition], *, even: bool = True) -> bool:
    held = [member.assignment for member in members]
    sizes = [len(part) for part in held]
    if sum(sizes) != len(partitions) or frozenset().union(*held) != frozenset(partitions):
        return False
    return not even or max(sizes) - min(sizes) <= 1


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def fill(
    kafka: KafkaCluster, partitions: Iterable[TopicPartition], first: int, count: int
) -> dict[TopicPartition, int]:
    """Writes `count` records to each; returns the ends."""
    producer = new_producer(kafka.bootstrap())
    ends: dict[TopicPartition, int] = {}
    for partition in partitions:
        rows = send(producer, partition.topic, numbered(first, count), partition=partition.partition)
        ends[partition] = rows[-1].offset + 1
    return ends


def committed_in(kafka: KafkaCluster, group: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """What the group has committed, asked by somebody who is no member."""
    with Consumer({"bootstrap.servers": kafka.bootstrap(), "group.id": group}) as consumer:
        return {p: found.offset for p, found in consumer.committed(partitions).items() if found is not None}
