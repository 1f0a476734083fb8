"""Members of groups outside of the test's own thread: processes of ours, Kafka's Java consumer, other clients.

Each tells in its own way what it holds and what it has read; here they all look alike: `assignment` and `offsets`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from confluent_kafka import Consumer as Librdkafka

from broker.group_members import KIP_848, KIP_848_RANGE, membership
from multilane import TopicPartition
from multilane.dev.kafka import QUICK_START, KafkaCluster, _logging_file

_MAIN = Path(__file__).with_name("group_member_main.py")
_VERIFIABLE = "org.apache.kafka.tools.VerifiableConsumer"
_JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
_AIO_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
_PATIENCE = 15.0


class _Process(ABC):
    """A process that writes JSON lines about itself. Killed at the end, whatever happens."""

    def __init__(self, command: list[str]) -> None:
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.offsets: dict[TopicPartition, list[int]] = {}
        self.events: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._finish()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL; everything that was told before has been read when this returns."""
        self._process.kill()
        self._finish()

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def order(self, *words: object) -> None:
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)

    def told(self, event: str) -> list[dict[str, Any]]:
        return [told for told in list(self.events) if told["event"] == event]

    def end(self) -> None:
        self._process.terminate()
        self._finish()

    def _finish(self) -> None:
        self._process.wait(_PATIENCE)
        self._reader.join(_PATIENCE)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                told = json.loads(line)
                self._take(told)
                self.events.append(told)

    @abstractmethod
    def _take(self, told: dict[str, Any]) -> None:
        """What one line says of assignment and offsets."""

    def _read_offsets(self, partition: TopicPartition, first: int, last: int) -> None:
        self.offsets.setdefault(partition, []).extend(range(first, last + 1))


class ProcessMember(_Process):
    """A consumer of ours in a process of its own; see `group_member_main` for what it can be told."""

    def __init__(self, kafka: KafkaCluster, group: str, topics: list[str], variant: str, **more: Any) -> None:
        properties = {
            "bootstrap.servers": kafka.bootstrap(),
            "group.id": group,
            "auto.offset.reset": "earliest",
            **membership(variant),
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        super().__init__([sys.executable, str(_MAIN), json.dumps(properties), json.dumps(topics)])

    def _take(self, told: dict[str, Any]) -> None:
        match told["event"]:
            case "assigned":
                self.assignment |= {TopicPartition(*p) for p in told["partitions"]}
            case "revoked" | "lost":
                self.assignment -= {TopicPartition(*p) for p in told["partitions"]}
            case "records":
                self._read_offsets(TopicPartition(*told["partition"]), told["first"], told["last"])


class JavaMember(_Process):
    """Kafka's own consumer: its VerifiableConsumer tells what it gets and commits after every poll."""

    def __init__(self, kafka: KafkaCluster, group: str, topic: str, variant: str) -> None:
        how = ["--group-protocol", "consumer"]
        if variant == KIP_848_RANGE:
            how += ["--group-remote-assignor", "range"]
        elif variant != KIP_848:
            name = f"org.apache.kafka.clients.consumer.{_JAVA_ASSIGNORS[variant]}"
            how = ["--group-protocol", "classic", "--session-timeout", "6000", "--assignment-strategy", name]
        where = ["--bootstrap-server", kafka.bootstrap(), "--group-id", group, "--topic", topic]
        jvm = kafka._jvm("128m", QUICK_START, _logging_file(kafka.directory, "tool"))
        super().__init__([*jvm, _VERIFIABLE, *where, *how])

    def _take(self, told: dict[str, Any]) -> None:
        match told["name"]:
            case "partitions_assigned":
                self.assignment |= {TopicPartition(p["topic"], p["partition"]) for p in told["partitions"]}
            case "partitions_revoked":
                self.assignment -= {TopicPartition(p["topic"], p["partition"]) for p in told["partitions"]}
            case "records_consumed":
                for part in told["partitions"]:
                    where = TopicPartition(part["topic"], part["partition"])
                    self._read_offsets(where, part["minOffset"], part["maxOffset"])
        told["event"] = told["name"]


class _Threaded(ABC):
    """Another client, driven by a thread of its own until the end."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, list[int]] = {}
        self.assignment: frozenset[TopicPartition] = frozenset()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._end.set()
        self._thread.join()

    @abstractmethod
    def _run(self) -> None: ...


class LibrdkafkaMember(_Threaded):
    """confluent-kafka."""

    def __init__(self, kafka: KafkaCluster, group: str, topic: str, variant: str) -> None:
        properties = {"bootstrap.servers": kafka.bootstrap(), "group.id": group, "auto.offset.reset": "earliest"}
        self._consumer = Librdkafka({**properties, **membership(variant), "log_level": 0})
        self._consumer.subscribe([topic])
        super().__init__()

    def _run(self) -> None:
        while not self._end.is_set():
            for message in self._consumer.consume(100, 0.05):
                if message.error() is None:
                    where = TopicPartition(message.topic(), message.partition())
                    self.offsets.setdefault(where, []).append(message.offset())
            self.assignment = frozenset(TopicPartition(p.topic, p.partition) for p in self._consumer.assignment())
        self._consumer.close()
        self.assignment = frozenset()


class AiokafkaMember(_Threaded):
    """aiokafka, in an event loop of its own."""

    def __init__(self, kafka: KafkaCluster, group: str, topic: str, variant: str) -> None:
        self._kafka, self._group, self._topic, self._variant = kafka, group, topic, variant
        super().__init__()

    def _run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._kafka.bootstrap(),
            group_id=self._group,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=[_AIO_ASSIGNORS[self._variant]],
        )
        await consumer.start()
        try:
            while not self._end.is_set():
                for place, records in (await consumer.getmany(timeout_ms=50)).items():
                    where = TopicPartition(place.topic, place.partition)
                    self.offsets.setdefault(where, []).extend(record.offset for record in records)
                self.assignment = frozenset(TopicPartition(p.topic, p.partition) for p in consumer.assignment())
        finally:
            await consumer.stop()
            self.assignment = frozenset()
