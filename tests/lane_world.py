"""A partition processor without Kafka: blocks go in, and tests look at what became of their records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from batch_builder import Batch, Rec
from multilane.clock import ManualClock
from multilane.commit.ledger import Ledger
from multilane.lanes.chains import Chains
from multilane.lanes.intake import Intake
from multilane.lanes.ordering import OrderOf, by_key
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.partition_queue import MAIN, PartitionQueue
from multilane.lanes.row_chains import RowChains
from multilane.lanes.threads import Threads
from multilane.lanes.work import Work
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.listener import Listener
from multilane.listeners.signature import read_signature
from multilane.listeners.window import Window, newest_of_each_key
from multilane.types import TopicPartition
from multilane.wire.records.block import Block
from multilane.wire.records.record import Record
from span_reading import read

PARTITION = TopicPartition("t", 3)


def block_of(keys: Sequence[str | None], start: int = 0, topic: str = "t") -> Block:
    """A record for each key; its value is its offset."""
    records = [Rec(i, key.encode() if key is not None else None, b"%d" % (start + i)) for i, key in enumerate(keys)]
    return replace(read(Batch(records, start), fetch_offset=start), topic=topic)


def record_of(key: str | None, offset: int, topic: str = "t", **more: Any) -> Record:
    return Record(topic, 3, offset, 0, 0, key.encode() if key is not None else None, b"%d" % offset, **more)


async def turns(many: int = 20) -> None:
    """Let all ready callbacks run."""
    loop = asyncio.get_running_loop()
    for _ in range(many):
        turn = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


async def until(what: Callable[[], object], patience: float = 30.0) -> None:
    """Wait for effects of other threads."""
    async with asyncio.timeout(patience):
        loop = asyncio.get_running_loop()
        while not what():
            await asyncio.wait([loop.create_future()], timeout=0.001)


@dataclass
class TakenOver:
    """The failure side of a test, which decides when a failed record may be settled."""

    failed: list[tuple[int, str]] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    wants_successes = False
    successes: int = 0
    interrupted: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate.set()

    async def take_over(self, record, error, parking):
        self.failed.append((record.offset, type(error).__name__))
        await self.gate.wait()

    async def follow_key(self, records, parking):
        raise AssertionError("nothing is parked here")

    def hanging_steps(self, now, limit, grace):
        return ()

    def note_done(self, records):
        self.successes += len(records)

    def note_skipped(self, records):
        """Ignored."""

    note_skipped_rows = note_skipped

    def note_interrupted(self, records):
        self.interrupted += [record.offset for record in records]


class World:
    """One partition. `handler` is a listener's function."""

    def __init__(
        self,
        handler: Callable[..., Any],
        *,
        lanes: int = 4,
        room: int = 1000,
        window: Window | None = None,
        rules: WorkRules | None = None,
        classes: dict[str, int] | None = None,
        route: Callable[[Record], str] | None = None,
        interceptors: InterceptorChain | None = None,
        due_at: Callable[[Record], float] | None = None,
        as_rows: bool = False,
        runner: Any = None,
        start: int = 0,
        order_of: OrderOf | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.failures = TakenOver()
        self.intake = Intake(PARTITION, Ledger(start, in_bulk=as_rows), room)
        lanes_by_class = {MAIN: lanes, **(classes or {})}
        chains = {name: Chains(order_of or by_key(), many, due_at) for name, many in lanes_by_class.items()}
        is_unique = window is not None and window.select is newest_of_each_key
        rows = RowChains(*PARTITION, lanes, newest=is_unique)
        self.queue = PartitionQueue([self.intake], {MAIN: rows} if as_rows else chains, route)
        self.threads = Threads("lane")
        listener = Listener(
            handler,
            read_signature(handler),
            window or Window(),
            interceptors or InterceptorChain("g"),
            runner or self.threads,
        )
        self.work = Work(self.queue, listener, self.failures, rules or WorkRules())
        self.processor = PartitionProcessor(self.queue, self.work, lanes_by_class, self.clock)
        self.pool = self.processor._pools[MAIN]
        self.errors: list[BaseException] = []
        self.processor.listen(lambda: None, self.errors.append)

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.processor.drain(self.clock.monotonic())
        self.threads.close()

    async def give(self, *keys: str | None) -> None:
        self.processor.accept(block_of(keys, self.intake.end))
        self.processor.feed()
        await turns()

    @property
    def frontier(self) -> int:
        return self.intake.ledger.frontier

    @property
    def is_done(self) -> bool:
        return self.processor.is_idle(PARTITION)

    async def sweep_after(self, seconds: float) -> None:
        """Two sweeps, that far apart."""
        self.pool._sweep()
        self.clock.advance(seconds)
        self.pool._sweep()
        await turns()
