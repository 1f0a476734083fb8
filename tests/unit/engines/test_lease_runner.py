"""Partitions that were lent for a while: what is told of them, what comes back, and what goes on beyond that."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from lane_world import TakenOver, until
from log_consumer import LogConsumer
from multilane.clock import SystemClock
from multilane.commit.ledger import Ledger
from multilane.engines.lease_runner import LeaseRunner
from multilane.lanes.assignment import ReadTopics, Start
from multilane.lanes.chains import Chains
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

ONE, TWO = TopicPartition("t", 1), TopicPartition("t", 2)
LONG = 60.0
CLOCK = SystemClock()


class LentConsumer(LogConsumer):
    """One that is told what to read."""

    reset_to = 0

    def assign(self, partitions):
        self.positions = dict.fromkeys(partitions, self.reset_to)


class Lent:
    """A stint over such logs. `slow` records end when they are allowed to, `bad` ones fail."""

    def __init__(self, logs, held=(), failures=None, whole=()):
        self.handled, self.gate, self.told, self.processors = [], asyncio.Event(), [], []
        self.consumer = LentConsumer()
        self.consumer.logs = logs
        self._held, self._failures = held, failures or TakenOver()
        self.lease_runner = LeaseRunner(
            self.consumer, ReadTopics(("t",), whole=frozenset(whole)), self._build, self._tell, 0.0, CLOCK
        )

    async def _tell(self, processors):
        self.told.append(processors)

    async def _build(self, starts):
        async def handler(record: Record) -> None:
            if record.key == b"slow":
                await self.gate.wait()
            if record.key == b"bad":
                raise ValueError("not today")
            self.handled.append((record.partition, record.offset))

        intakes = [Intake(p, Ledger(*starts[p][:3]), 1000) for p in starts]
        chains = Chains(by_key(), 4)
        chains.hold(self._held)
        queue = PartitionQueue(intakes, {MAIN: chains})
        listener = Listener(handler, read_signature(handler), Window(), InterceptorChain("g"), Threads("lane"))
        self.processors.append(
            PartitionProcessor(queue, Work(queue, listener, self._failures, WorkRules(LONG)), {MAIN: 4}, CLOCK)
        )
        return self.processors[-1]

    def run(self, starts, seconds=LONG, patience=0.0, ends=None):
        self.running = asyncio.create_task(self.lease_runner.run(starts, seconds, patience, ends))
        return self.running

    async def has_handled(self, many):
        """Or it has ended, and then with what."""
        await until(lambda: len(self.handled) >= many or self.running.done())
        if self.running.done():
            self.running.result()
        assert len(self.handled) == many


async def test_it_begins_where_it_was_told_to_and_passes_over_what_is_settled():
    lent = Lent({ONE: ["a", "b", "c", "d", "e"], TWO: ["x"]})
    running = lent.run({ONE: Start(1, ((2, 3),)), TWO: Start(0)})
    await lent.has_handled(3)
    lent.lease_runner.end()
    processors = await running
    assert sorted(lent.handled) == [(1, 1), (1, 4), (2, 0)]
    assert {p: processor.commit_point(p).offset for processor in processors for p in processor.partitions} == {
        ONE: 5,
        TWO: 1,
    }
    assert lent.consumer.paused == {ONE, TWO}, "nothing is read until the next time"


async def test_what_is_known_of_a_log_is_for_whoever_reads_it():
    lent, topic_id = Lent({ONE: ["a", "b"], TWO: ["x"]}), uuid4()
    running = lent.run({ONE: Start(1, leader_epoch=7, topic_id=topic_id), TWO: Start(0)})
    await lent.has_handled(2)
    lent.lease_runner.end()
    await running
    assert lent.consumer.sought == {ONE: (1, 7, topic_id), TWO: (0, None, None)}


async def test_a_unit_that_is_wanted_back_while_it_is_formed_is_not_begun():
    lent, may_build = Lent({ONE: ["a", "b"]}), asyncio.Event()
    build = lent._build

    async def slowly(starts):
        await may_build.wait()
        return await build(starts)

    lent.lease_runner = LeaseRunner(lent.consumer, ReadTopics(("t",)), slowly, lent._tell, 0.0, CLOCK)
    running = lent.run({ONE: Start(0)})
    asked = asyncio.create_task(lent.lease_runner.give_back(frozenset({ONE}), 0.0))
    await until(lambda: lent.lease_runner._wanted_back)
    may_build.set()
    assert set(await asked) == set(lent.processors)
    assert not await running
    assert lent.handled == []


async def test_when_the_time_is_up_nothing_more_is_begun():
    lent = Lent({ONE: ["slow", "slow", "a"]})
    running = lent.run({ONE: Start(0)})
    await lent.has_handled(1)
    lent.lease_runner.end()
    [processor] = await running
    assert [record.offset for record in processor.unfinished] == [0]
    lent.gate.set()
    await until(lambda: not processor.unfinished)
    assert lent.handled == [(1, 2), (1, 0)], "what was in work has ended, and its successor was not begun"
    assert processor.full_commit_point(ONE).offset == 1
    assert processor.full_commit_point(ONE).runs == ((2, 2),)
    await processor.drain(CLOCK.monotonic())


async def test_while_it_waits_for_what_is_in_work_it_tells_and_gives_back(monkeypatch):
    monkeypatch.setattr("multilane.engines.lease_runner._TELL_EVERY", 0.01)
    lent = Lent({ONE: ["slow"], TWO: ["slow", "a"]})
    running = lent.run({ONE: Start(0), TWO: Start(0)}, patience=LONG)
    await lent.has_handled(1)
    lent.lease_runner.end()
    await until(lambda: all(processor._pools[MAIN]._must_check for processor in lent.processors))
    lent.told.clear()
    await until(lambda: lent.told)
    [given] = await lent.lease_runner.give_back(frozenset({TWO}), 0.0)
    assert given.partitions == {TWO}
    assert not running.done()
    lent.gate.set()
    [processor] = await running
    assert processor.partitions == {ONE}
    assert processor.commit_point(ONE).offset == 1


async def test_its_time():
    lent = Lent({ONE: ["a"]})
    [processor] = await lent.run({ONE: Start(0)}, seconds=0.05)
    assert not processor.unfinished


async def test_it_tells_how_far_it_is(monkeypatch):
    monkeypatch.setattr("multilane.engines.lease_runner._TELL_EVERY", 0.01)
    lent = Lent({ONE: ["a"]})
    running = lent.run({ONE: Start(0)})
    await until(
        lambda: any(processor.commit_point(ONE).offset == 1 for processors in lent.told for processor in processors)
    )
    lent.lease_runner.end()
    await running


async def test_keys_that_are_in_work_elsewhere_wait():
    held = Record("t", 1, 0, 0, 0, b"b", None)
    lent = Lent({ONE: ["a", "b", "c", "b"]}, held=[held])
    running = lent.run({ONE: Start(0)})
    await lent.has_handled(2)
    lent.lease_runner.end()
    [processor] = await running
    assert lent.handled == [(1, 0), (1, 2)]
    assert processor.full_commit_point(ONE).offset == 1
    assert processor.full_commit_point(ONE).runs == ((2, 2),)


async def test_a_key_goes_on_when_all_that_was_at_it_elsewhere_is_done_with():
    first, second = (Record("t", 1, offset, 0, 0, b"b", None) for offset in (0, 1))
    lent = Lent({ONE: ["a", "b"]}, held=[first, second])
    running = lent.run({ONE: Start(0)})
    await lent.has_handled(1)
    lent.processors[0].release_held([first])
    lent.consumer.logs[ONE].append("c")
    await lent.has_handled(2)
    assert lent.handled == [(1, 0), (1, 2)], "somebody is still at the key"
    lent.processors[0].release_held([second])
    await lent.has_handled(3)
    lent.lease_runner.end()
    await running
    assert lent.handled[-1] == (1, 1)


async def test_a_topic_that_is_read_whole_begins_at_its_beginning_where_no_place_is_known():
    lent = Lent({ONE: ["a", "b"]}, whole={"t"})
    lent.consumer.reset_to = 2
    running = lent.run({ONE: Start(-1)})
    await lent.has_handled(2)
    lent.lease_runner.end()
    await running


async def test_a_unit_is_given_back_in_the_middle_and_the_others_go_on():
    lent = Lent({ONE: ["a"], TWO: ["b"]})
    running = lent.run({ONE: Start(0), TWO: Start(0)})
    await lent.has_handled(2)
    [given] = await lent.lease_runner.give_back(frozenset({ONE}), 1.0)
    assert given.commit_point(ONE).offset == 1
    lent.consumer.logs[ONE].append("c")
    lent.consumer.logs[TWO].append("d")
    await lent.has_handled(3)
    lent.lease_runner.end()
    [processor] = await running
    assert processor.partitions == {TWO}
    assert (1, 1) not in lent.handled
    assert await asyncio.wait_for(lent_again(lent), 30.0) == []


async def lent_again(lent):
    """With nothing to do it is over at once."""
    return list(
        await LeaseRunner(lent.consumer, ReadTopics(("t",)), lent._build, lent._tell, 0.0, CLOCK).run({}, LONG, 0.0)
    )


async def test_a_failure_of_a_lane_ends_it():
    class Broken(TakenOver):
        async def take_over(self, record, error, parking):
            raise RuntimeError("the breaker is open")

    lent = Lent({ONE: ["bad"]}, failures=Broken())
    with pytest.raises(RuntimeError, match="the breaker is open"):
        await lent.run({ONE: Start(0)})


# --- where it has to end ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 1000])
async def test_with_ends_it_is_over_when_all_before_them_is_settled(most):
    lent = Lent({ONE: ["a", "b", "slow", "d", "e"], TWO: ["x", "y"]})
    lent.consumer.most = most
    running = lent.run({ONE: Start(1), TWO: Start(0)}, ends={ONE: 4, TWO: 2})
    await lent.has_handled(4)
    assert not running.done()
    lent.gate.set()
    processors = await asyncio.wait_for(running, 30.0)
    assert sorted(lent.handled) == [(1, 1), (1, 2), (1, 3), (2, 0), (2, 1)]
    places = {p: processor.commit_point(p) for processor in processors for p in processor.partitions}
    assert places[ONE].offset >= 4
    assert places[TWO].offset == 2


async def test_the_records_before_an_end_may_be_absent(monkeypatch):
    """Markers of transactions, or what compaction took away: only the position gets there."""
    monkeypatch.setattr("multilane.engines.lease_runner._TELL_EVERY", 0.01)

    class Marked(LentConsumer):
        async def position(self, partition, timeout=None):
            return 5 if await super().position(partition, timeout) == 3 else 0

    lent = Lent({ONE: ["a", "b", "c"]})
    lent.consumer.__class__ = Marked
    [processor] = await asyncio.wait_for(lent.run({ONE: Start(0)}, ends={ONE: 5}), 30.0)
    assert lent.handled == [(1, 0), (1, 1), (1, 2)]
    assert processor.commit_point(ONE).offset == 5


async def test_everything_before_an_end_was_settled_before():
    lent = Lent({ONE: ["a", "b", "c", "d"]})
    await asyncio.wait_for(lent.run({ONE: Start(1, ((2, 2),))}, ends={ONE: 3}), 30.0)
    assert lent.handled == [(1, 1)]


async def test_a_partition_at_its_end_is_not_read_on_while_others_are():
    lent = Lent({ONE: ["a"], TWO: ["slow"]})
    running = lent.run({ONE: Start(0), TWO: Start(0)}, ends={ONE: 1, TWO: 1})
    await lent.has_handled(1)
    lent.consumer.logs[ONE] += ["b", "c"]
    lent.processors[0].feed()
    await until(lambda: lent.consumer.paused == {ONE, TWO})
    lent.gate.set()
    await asyncio.wait_for(running, 30.0)
    assert sorted(lent.handled) == [(1, 0), (2, 0)]


async def test_an_end_that_is_not_reached_can_be_given_up():
    lent = Lent({ONE: ["a"]})
    running = lent.run({ONE: Start(0)}, ends={ONE: 9})
    await lent.has_handled(1)
    lent.lease_runner.end()
    [processor] = await asyncio.wait_for(running, 30.0)
    assert processor.commit_point(ONE).offset == 1
