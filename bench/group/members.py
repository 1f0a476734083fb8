"""One member of a group, of any client, with the same four methods.

Thread: application of a child process.

A poll returns the partitions that had records and does not touch the records: groups are measured here, not reading.
`holds` is the number of assigned partitions. Heavy imports happen when the client is opened, before anything is timed.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.group.systems import Seat, System, properties
from bench.java import JavaProgram


class Member(Protocol):
    def subscribe(self) -> None: ...
    def poll(self, seconds: float) -> frozenset[int]: ...
    def holds(self) -> int: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Opened:
    """A loaded client. `began` is when its process was started (for Java: the JVM)."""

    began: float
    make: Callable[[Seat], Member]
    close: Callable[[], None]


def open_client(system: System, began: float, java: JavaProgram | None = None) -> Opened:
    if system.client == "java":
        return _open_java(system, java)
    kinds: dict[str, Callable[[System, Seat], Member]] = {
        "ours": OurMember,
        "confluent": ConfluentMember,
        "aiokafka": AiokafkaMember,
    }
    _load(system.client)
    return Opened(began, lambda seat: kinds[system.client](system, seat), lambda: None)


def _load(client: str) -> None:
    __import__({"ours": "multilane", "confluent": "confluent_kafka", "aiokafka": "aiokafka"}[client])
    if client == "ours":
        from multilane import Consumer  # noqa: F401 - the package loads it when it is asked for


def _open_java(system: System, java: JavaProgram | None) -> Opened:
    import py4j.java_gateway  # type: ignore[import-untyped]  # noqa: F401 - its time is not Java's

    from bench.group.gateway import JavaMember, open_gateway

    if java is None:
        raise ValueError("no Java was given")
    directory = tempfile.TemporaryDirectory(prefix="multilane-bench-")
    began = time.time()
    gateway = open_gateway(java, Path(directory.name))

    def close() -> None:
        gateway.close()
        directory.cleanup()

    return Opened(began, lambda seat: JavaMember(gateway, system, seat), close)


class OurMember:
    def __init__(self, system: System, seat: Seat) -> None:
        from multilane import Consumer

        self._consumer = Consumer(properties(system, seat))
        self._topic = seat.topic

    def subscribe(self) -> None:
        self._consumer.subscribe([self._topic])

    def poll(self, seconds: float) -> frozenset[int]:
        return frozenset(block.partition for block in self._consumer.poll(seconds))

    def holds(self) -> int:
        return len(self._consumer.assignment)

    def close(self) -> None:
        self._consumer.close()


class ConfluentMember:
    def __init__(self, system: System, seat: Seat) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(dict(properties(system, seat)))
        self._topic = seat.topic

    def subscribe(self) -> None:
        self._consumer.subscribe([self._topic])

    def poll(self, seconds: float) -> frozenset[int]:
        message = self._consumer.poll(seconds)
        if message is None:
            return frozenset()
        if message.error() is not None:
            raise RuntimeError(str(message.error()))
        partition = message.partition()
        return frozenset(() if partition is None else (partition,))

    def holds(self) -> int:
        return len(self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()


class AiokafkaMember:
    """`start` joins the group, after the subscription."""

    def __init__(self, system: System, seat: Seat) -> None:
        self._loop = asyncio.new_event_loop()
        self._seat = seat
        self._consumer: Any = self._loop.run_until_complete(self._make())

    async def _make(self) -> Any:
        from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]

        return AIOKafkaConsumer(
            bootstrap_servers=self._seat.bootstrap, group_id=self._seat.group, auto_offset_reset=self._seat.reset
        )

    def subscribe(self) -> None:
        self._consumer.subscribe([self._seat.topic])
        self._loop.run_until_complete(self._consumer.start())

    def poll(self, seconds: float) -> frozenset[int]:
        found = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=int(seconds * 1_000)))
        return frozenset(partition.partition for partition in found)

    def holds(self) -> int:
        return len(self._consumer.assignment())

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()
