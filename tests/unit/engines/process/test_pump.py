"""The pump against logs that a test writes, cuts and assigns: what is read is handled, nothing else is committed."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from lane_world import PARTITION, TakenOver, until
from log_consumer import LogConsumer
from multilane.clock import SystemClock
from multilane.commit.ledger import Ledger
from multilane.engines.process.pump import Pump
from multilane.lanes.assignment import ReadTopics
from multilane.lanes.chains import Chains
from multilane.lanes.group_membership import Timing
from multilane.lanes.intake import Intake
from multilane.lanes.ordering import by_key
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.partition_queue import MAIN, PartitionQueue
from multilane.lanes.threads import Threads
from multilane.lanes.work import Work
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.listener import Listener
from multilane.listeners.signature import read_signature
from multilane.listeners.window import Window
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

ONE, TWO, RETRY = TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("t.retry", 1)


class Running:
    """A pump over such logs, until the end of the block."""

    commit_interval = 0.01

    def __init__(self, handler, consumer: LogConsumer, *, pairs: bool = False, route=None, whole=()) -> None:
        self.handler, self.route, self.failures = handler, route, TakenOver()
        names = ("t.retry", "t") if pairs else ("t",)
        topics = ReadTopics(names, (names,) if pairs else (), frozenset(whole))
        self.pump = Pump(consumer, topics, self.build, Timing(self.commit_interval, 0.05), SystemClock())

    async def build(self, starts):
        intakes = [Intake(p, Ledger(*starts[p][:3]), 1000) for p in sorted(starts, reverse=True)]
        queue = PartitionQueue(intakes, {MAIN: Chains(by_key(), 4)}, self.route)
        listener = Listener(
            self.handler, read_signature(self.handler), Window(), InterceptorChain("g"), Threads("lane")
        )
        return PartitionProcessor(
            queue, Work(queue, listener, self.failures, WorkRules(60.0)), {MAIN: 4}, SystemClock()
        )

    async def __aenter__(self) -> Running:
        self.task = asyncio.create_task(self.pump.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.pump.stop()
        await self.task


class TwoBlocks(LogConsumer):
    """A poll may bring two blocks of a partition. After a seek, the partition brings nothing until `refetch` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.refetch = asyncio.Event()
        self.furthest: dict[TopicPartition, int] = {}  # commits while nothing is refetched
        self._waits: set[TopicPartition] = set()

    def seek(self, partition, offset, leader_epoch=None, topic_id=None):
        super().seek(partition, offset, leader_epoch, topic_id)
        self._waits.add(partition)

    def _waiting(self, partition):
        return super()._waiting(partition) and (partition not in self._waits or self.refetch.is_set())

    async def poll(self, timeout):
        first = await super().poll(timeout)
        return first + [self._read(p) for p in sorted(self.positions) if p not in self.paused and self._waiting(p)]

    def commit_async(self, offsets, callback):
        super().commit_async(offsets, callback)
        if self._waits and not self.refetch.is_set():
            self.furthest |= {p: max(place.offset, self.furthest.get(p, 0)) for p, place in offsets.items()}


class RunningLong(Running):
    """It commits only at its end."""

    commit_interval = 60.0


async def test_a_wakeup_for_a_poll_does_not_end_the_assignment():
    handled = []

    async def handler(record: Record) -> None:
        handled.append((record.partition, record.offset))

    consumer = LogConsumer()
    consumer.logs = {ONE: ["a", "b"], TWO: ["c"]}
    consumer.disturbed = {"committed", "topic_ids"}
    async with Running(handler, consumer) as running:
        consumer.assign(ONE)
        consumer.assign(TWO)
        await until(lambda: len(handled) == 3)
        await until(lambda: consumer.committed_offsets == {ONE: 2, TWO: 1})
        assert len(running.pump.processors) == 2


async def test_a_wakeup_for_a_poll_does_not_lose_the_last_commit(caplog):
    handled = []

    async def handler(record: Record) -> None:
        handled.append(record.offset)

    consumer = LogConsumer()
    consumer.logs = {ONE: ["a", "b"]}
    async with RunningLong(handler, consumer):
        consumer.assign(ONE)
        await until(lambda: len(handled) == 2)
        consumer.disturbed = {"commit"}
    assert consumer.committed_offsets == {ONE: 2}
    assert not [record for record in caplog.records if "wakeup" in record.getMessage()]


async def test_a_wakeup_while_lanes_begin_again_loses_no_block():
    """The blocks of one poll are given while the log is checked: those behind must still reach their lanes."""
    handled = []

    async def handler(record: Record) -> None:
        handled.append((record.partition, record.offset))

    consumer = LogConsumer()
    consumer.logs = {ONE: ["a", "b"], TWO: ["c"]}
    async with Running(handler, consumer):
        consumer.assign(ONE)
        consumer.assign(TWO)
        await until(lambda: len(handled) == 3)
        consumer.logs |= {ONE: ["x"], TWO: ["c", "d"]}
        consumer.positions[ONE] = 0  # it was made again
        consumer.disturbed = {"topic_ids"}
        await until(lambda: consumer.committed_offsets == {ONE: 1, TWO: 2})
    assert handled[3:] == [(1, 0), (2, 1)]


async def test_a_topic_of_copies_begins_at_its_beginning_where_nothing_is_committed():
    """A copy that was stored before the group had a position there was passed over, and its record was settled."""
    consumer, handled = LogConsumer(), []
    consumer.logs = {ONE: list("abc"), RETRY: list("xyz")}
    consumer.positions = {ONE: 2, RETRY: 3}  # where the consumer would begin by itself: near the end
    consumer.assign(ONE, RETRY)

    async def handler(record: Record) -> None:
        handled.append((record.topic, record.key))

    async with Running(handler, consumer, whole=["t.retry"]):
        await until(lambda: len(handled) >= 4)
    assert sorted(handled) == [("t", b"c"), ("t.retry", b"x"), ("t.retry", b"y"), ("t.retry", b"z")]


async def test_a_partition_whose_pair_does_not_exist_is_reported(caplog):
    consumer, handled = LogConsumer(), []
    consumer.logs = {TopicPartition("t", n): ["a"] for n in range(3)} | {
        TopicPartition("t.retry", n): [] for n in range(2)
    }
    consumer.assign(*consumer.logs)

    async def handler(record: Record) -> None:
        handled.append(record.partition)

    async with Running(handler, consumer, pairs=True):
        await until(lambda: len(handled) == 2)
        assert TWO in consumer.paused
    assert sorted(handled) == [0, 1]
    assert "t-2 are not read: t.retry has 2 partitions" in caplog.text


async def test_a_partition_without_a_processor_is_not_read_in_silence():
    async def handler(record: Record) -> None: ...

    consumer = LogConsumer()
    consumer.logs, consumer.positions = {ONE: ["a"]}, {ONE: 0}  # assigned, and nobody was told
    running = Running(handler, consumer)
    await asyncio.wait([task := asyncio.create_task(running.pump.run())], timeout=30)
    assert "is read but has no processor" in str(task.exception())
    assert consumer.committed_offsets == {}


async def test_what_is_unsettled_below_a_cut_is_still_done():
    gate, handled = asyncio.Event(), []

    async def handler(record: Record) -> None:
        if record.key == b"slow":
            await gate.wait()
        handled.append(record.offset)

    consumer = LogConsumer()
    consumer.logs = {ONE: ["a", "slow", "slow", "b", "c", "d", "e"]}
    async with Running(handler, consumer):
        consumer.assign(ONE)
        await until(lambda: len(handled) == 5)
        consumer.logs[ONE] = [*consumer.logs[ONE][:5], "new", "newer"]  # cut at 5, and written again
        consumer.positions[ONE] = 5
        await until(lambda: handled.count(0) == 1 and 6 in handled[5:])
        gate.set()
        await until(lambda: consumer.committed_offsets[ONE] == 7)
    assert {1, 2} <= set(handled)
    assert [handled.count(offset) for offset in (0, 3, 4)] == [1, 1, 1], "what was settled below the cut is"


async def test_what_is_settled_of_a_topic_that_was_made_again_is_not_committed():
    """Its offsets would pass over records of the new one; the old ones are in work still, and nothing new is read."""
    gate, handled = asyncio.Event(), []

    async def handler(record: Record) -> None:
        if record.key == b"slow":
            await gate.wait()
        handled.append(record.key)

    consumer = LogConsumer()
    consumer.logs = {ONE: ["a", "b", "slow", "c"]}
    async with Running(handler, consumer):
        consumer.assign(ONE)
        await until(lambda: consumer.committed_offsets == {ONE: 2})
        consumer.logs[ONE], consumer.positions[ONE] = [], 0  # deleted, and made again
        consumer.topic_id = uuid4()
        gate.set()
        await until(lambda: handled == [b"a", b"b", b"c", b"slow"])
        rounds = consumer.polls
        await until(lambda: consumer.polls > rounds + 50)
        assert consumer.committed_offsets == {ONE: 2}
        consumer.logs[ONE] = ["new"]
        await until(lambda: consumer.committed_offsets == {ONE: 1})
    assert handled[4:] == [b"new"]


async def test_metadata_that_is_older_than_the_log_keeps_no_commit():
    """A member whose partitions are paused fetches nothing, so its metadata may have the old topic for minutes."""
    handled = []

    async def handler(record: Record) -> None:
        handled.append(record.offset)

    old = uuid4()
    consumer = LogConsumer()
    consumer.known_topic_id = lambda topic: old
    consumer.logs = {ONE: ["a", "b", "c"]}
    async with Running(handler, consumer):
        consumer.assign(ONE)
        await until(lambda: consumer.committed_offsets == {ONE: 3})


async def test_the_other_of_a_pair_goes_back_to_what_is_unsettled():
    gate, handled = asyncio.Event(), []

    async def handler(record: Record) -> None:
        if record.topic == "t.retry":
            await gate.wait()
        handled.append((record.topic, record.offset))

    consumer = LogConsumer()
    consumer.logs = {ONE: ["a", "b", "c"], RETRY: ["x", "y", "z"]}
    async with Running(handler, consumer, pairs=True):
        consumer.assign(ONE)
        consumer.assign(RETRY)
        await until(lambda: len(handled) == 3)
        consumer.logs[ONE] = ["a", "d", "e", "f"]
        consumer.positions[ONE] = 1
        await until(lambda: len(handled) == 6)
        gate.set()
        await until(lambda: consumer.committed_offsets == {ONE: 4, RETRY: 3})
    assert sorted(o for t, o in handled if t == "t.retry") == [0, 1, 2]


async def test_what_lies_behind_a_gap_is_not_taken_after_a_cut():
    """Offsets 1, 4 and 5 of the new log are read again. The block from 6 on, of the same poll, would be taken for what
    follows 1, and a commit would skip them."""
    gate, handled = asyncio.Event(), []

    async def handler(record: Record) -> None:
        if record.key == b"slow":
            await gate.wait()
        handled.append((record.offset, record.key))

    consumer = TwoBlocks()
    consumer.most = 2
    consumer.logs = {ONE: ["a", "slow", "c", "d", "e", "f", "g", "h"]}
    async with Running(handler, consumer):
        consumer.assign(ONE)
        await until(lambda: len(handled) == 7)
        consumer.logs[ONE] = ["a", "slow", "c", "d", "E", "F", "G", "H"]
        consumer.positions[ONE] = 4
        rounds = consumer.polls
        await until(lambda: consumer.polls > rounds + 50)
        gate.set()
        assert consumer.furthest.get(ONE, 0) <= 1
        consumer.refetch.set()
        await until(lambda: consumer.committed_offsets == {ONE: 8})
    assert {(4, b"E"), (5, b"F"), (6, b"G"), (7, b"H"), (1, b"slow")} <= set(handled)


async def test_a_processor_that_begins_beyond_its_start_is_sought_there():
    """As triggers do of which an absent one has left records: reading those would look like another cut."""
    handled: list[int] = []

    async def handler(record: Record) -> None:
        handled.append(record.offset)

    class Beyond(Running):
        async def build(self, starts):
            begin = max(5, starts[ONE].offset)
            consumer.seek(ONE, begin)
            return await super().build({ONE: starts[ONE]._replace(offset=begin)})

    consumer = LogConsumer()
    consumer.logs = {ONE: [f"k{n}" for n in range(8)]}
    async with Beyond(handler, consumer) as running:
        consumer.assign(ONE)
        await until(lambda: handled == [5, 6, 7])
        running.pump.cut(ONE, 2)
        await until(lambda: consumer.sought.get(ONE, (0,))[0] == 5)
        await until(lambda: handled == [5, 6, 7, 5, 6, 7])
        await until(lambda: consumer.committed_offsets == {ONE: 8})


async def test_the_other_of_a_pair_takes_nothing_behind_a_gap_either():
    gate, handled = asyncio.Event(), []

    async def handler(record: Record) -> None:
        if record.topic == "t.retry" and record.offset < 2:
            await gate.wait()
        handled.append((record.topic, record.offset, record.key))

    consumer = TwoBlocks()
    consumer.logs = {ONE: ["a", "b", "c"], RETRY: ["x", "y"]}
    async with Running(handler, consumer, pairs=True):
        consumer.assign(ONE)
        consumer.assign(RETRY)
        await until(lambda: len(handled) == 3)
        consumer.logs = {ONE: ["a", "d", "e", "f"], RETRY: ["x", "y", "z"]}
        consumer.positions[ONE] = 1
        rounds = consumer.polls
        await until(lambda: consumer.polls > rounds + 50)
        gate.set()
        assert consumer.furthest.get(RETRY, 0) == 0
        consumer.refetch.set()
        await until(lambda: consumer.committed_offsets == {ONE: 4, RETRY: 3})
    assert sorted(o for t, o, _ in handled if t == "t.retry") == [0, 1, 2]


async def test_a_full_partition_is_paused_and_goes_on():
    handled = []

    async def handler(record: Record) -> None:
        handled.append(record.offset)

    consumer = LogConsumer()
    consumer.most = 3000
    consumer.logs = {ONE: [f"k{i % 700}" for i in range(12_000)]}
    async with Running(handler, consumer):
        consumer.assign(ONE)
        await until(lambda: len(handled) == 12_000)
        await until(lambda: consumer.committed_offsets == {ONE: 12_000})
    assert sorted(handled) == list(range(12_000))
    assert PARTITION not in consumer.paused
