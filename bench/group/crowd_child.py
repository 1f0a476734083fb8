"""Many consumers in one process: `python -m bench.group.crowd_child '<order as JSON>'`.

Thread: application; consumers that block have a thread each.

Opens one consumer, then all, in waves; waits until they are settled; measures their resources while no records arrive
and, on command, while records arrive, or ends. Every consumer reads all of its topic in a group of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from bench.group import process
from bench.group.systems import SYSTEMS, Seat, System, properties

WAVE: Final = 50
GIVE_UP_SECONDS: Final = 120.0
NETWORK_THREAD: Final = "multilane-network-"
_RAMP_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Order:
    """`topics` are distributed in turn. Every topic has records already: a consumer that has read some is settled."""

    system: str
    bootstrap: str
    group: str
    topics: Sequence[str]
    consumers: int
    poll_seconds: float
    settle_seconds: float
    idle_seconds: float
    load_seconds: float = 0.0

    @property
    def ports(self) -> list[int]:
        return [int(address.rpartition(":")[2]) for address in self.bootstrap.split(",")]

    def seat(self, number: int) -> Seat:
        return Seat(self.bootstrap, f"{self.group}-{number}", self.topics[number % len(self.topics)])


@dataclass(frozen=True, slots=True)
class Usage:
    """Of the whole process, over `seconds`; counts are taken at the end."""

    seconds: float
    cpu_seconds: float
    records: int
    threads: int
    network_threads: int
    connections: int  # of the broker with most of them
    resident_bytes: int


class Crowd(Protocol):
    counts: list[int]

    async def add(self, seat: Seat) -> None: ...
    async def close(self) -> None: ...


class TaskCrowd:
    """Consumers for asyncio: all in this loop, one task each."""

    def __init__(self, open_consumer: Callable[[Seat], Awaitable[tuple[Any, Callable[[], Awaitable[int]]]]]) -> None:
        self.counts: list[int] = []
        self._open = open_consumer
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def add(self, seat: Seat) -> None:
        consumer, read = await self._open(seat)
        self._closers.append(consumer)
        self.counts.append(0)
        self._tasks.append(asyncio.create_task(self._run(len(self.counts) - 1, read)))

    async def _run(self, number: int, read: Callable[[], Awaitable[int]]) -> None:
        while True:
            self.counts[number] += await read()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(close() for close in self._closers))


class ThreadCrowd:
    """confluent-kafka: consumers block, so each has an application thread."""

    def __init__(self, system: System, poll_seconds: float) -> None:
        self.counts: list[int] = []
        self._system = system
        self._poll_seconds = poll_seconds
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    async def add(self, seat: Seat) -> None:
        self.counts.append(0)
        self._threads.append(threading.Thread(target=self._run, args=(len(self.counts) - 1, seat)))
        self._threads[-1].start()

    def _run(self, number: int, seat: Seat) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(dict(properties(self._system, seat)))
        consumer.subscribe([seat.topic])
        while not self._stop.is_set():
            self.counts[number] += len(consumer.consume(500, timeout=self._poll_seconds))
        consumer.close()

    async def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def our_crowd(system: System, poll_seconds: float) -> Crowd:
    from multilane import AsyncConsumer

    async def opened(seat: Seat) -> tuple[Any, Callable[[], Awaitable[int]]]:
        consumer = AsyncConsumer(properties(system, seat))
        consumer.subscribe([seat.topic])

        async def read() -> int:
            return (await consumer.poll(poll_seconds)).rows

        return consumer.close, read

    return TaskCrowd(opened)


def aiokafka_crowd(system: System, poll_seconds: float) -> Crowd:
    from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]

    async def opened(seat: Seat) -> tuple[Any, Callable[[], Awaitable[int]]]:
        consumer = AIOKafkaConsumer(
            seat.topic, bootstrap_servers=seat.bootstrap, group_id=seat.group, auto_offset_reset=seat.reset
        )
        await consumer.start()

        async def read() -> int:
            found = await consumer.getmany(timeout_ms=int(poll_seconds * 1_000))
            return sum(map(len, found.values()))

        return consumer.stop, read

    return TaskCrowd(opened)


def confluent_crowd(system: System, poll_seconds: float) -> Crowd:
    import confluent_kafka  # noqa: F401 - before the memory of the imports is taken

    return ThreadCrowd(system, poll_seconds)


CROWDS: Final[dict[str, Callable[[System, float], Crowd]]] = {
    "ours": our_crowd,
    "confluent": confluent_crowd,
    "aiokafka": aiokafka_crowd,
}


class Session:
    """The steps of one measurement."""

    def __init__(self, order: Order) -> None:
        system = SYSTEMS[order.system]
        self._order = order
        self._crowd = CROWDS[system.client](system, order.poll_seconds)
        self._imported = process.resident_bytes()

    async def run(self) -> None:
        order = self._order
        try:
            alone = await self._gather(1)
            await self._gather(order.consumers)
            idle = await self._measure(order.idle_seconds)
            tell("idle", imported=self._imported, alone=alone, **asdict(idle))
            await _next_line()
            if order.load_seconds:
                await self._wait_traffic(sum(self._crowd.counts))
                tell("load", **asdict(await self._measure(order.load_seconds)))
        finally:
            await self._crowd.close()
        tell("end")

    async def _gather(self, consumers: int) -> int:
        """Opens consumers up to this number and waits until all are settled; returns the memory in use then."""
        while (have := len(self._crowd.counts)) < consumers:
            for number in range(have, min(have + WAVE, consumers)):
                await self._crowd.add(self._order.seat(number))
            await self._wait_settled()
        await asyncio.sleep(self._order.settle_seconds)
        return process.resident_bytes()

    async def _wait_settled(self) -> None:
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while not all(self._crowd.counts):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._crowd.counts.count(0)} consumers have no record")
            await asyncio.sleep(0.1)

    async def _wait_traffic(self, before: int) -> None:
        """Waits until records arrive and the producer has reached its rate."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while sum(self._crowd.counts) == before:
            if time.monotonic() > deadline:
                raise RuntimeError("no records arrived")
            await asyncio.sleep(0.1)
        await asyncio.sleep(_RAMP_SECONDS)

    async def _measure(self, seconds: float) -> Usage:
        began, cpu, records = time.monotonic(), time.process_time(), sum(self._crowd.counts)
        await asyncio.sleep(seconds)
        took, used = time.monotonic() - began, time.process_time() - cpu
        names = [thread.name for thread in threading.enumerate()]
        return Usage(
            seconds=took,
            cpu_seconds=used,
            records=sum(self._crowd.counts) - records,
            threads=process.thread_count(),
            network_threads=sum(name.startswith(NETWORK_THREAD) for name in names),
            connections=max(process.connections(self._order.ports).values()),
            resident_bytes=process.resident_bytes(),
        )


async def _next_line() -> None:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    await reader.readline()


def tell(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


if __name__ == "__main__":
    asyncio.run(Session(Order(**json.loads(sys.argv[1]))).run())
