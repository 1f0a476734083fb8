"""Leased partitions: what is reported, what is returned, and what goes on beyond the lease."""

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


class LeaseConsumer(LogConsumer):
    """Its partitions are assigned by the test."""

    reset_to = 0

    def assign(self, partitions):
        self.positions = dict.fromkeys(partitions, self.reset_to)


class Leased:
    """A lease runner over such logs. `slow` records end when they are allowed to, `bad` ones fail."""

    def __init__(self, logs, held=(), failures=None, whole=()):
        self.handled, self.gate, self.reported, self.processors = [], asyncio.Event(), [], []
        self.consumer = LeaseConsumer()
        self.consumer.logs = logs
        self._held, self._failures = held, failures or TakenOver()
        self.lease_runner = LeaseRunner(
            self.consumer, ReadTopics(("t",), from_beginning=frozenset(whole)), self._build, self._report, 0.0, CLOCK
        )

    async def _report(self, processors):
        self.reported.append(processors)

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


async def test_it_begins_at_its_starts_and_skips_settled_records():
    leased = Leased({ONE: ["a", "b", "c", "d", "e"], TWO: ["x"]})
    running = leased.run({ONE: Start(1, ((2, 3),)), TWO: Start(0)})
    await leased.has_handled(3)
    leased.lease_runner.end()
    processors = await running
    assert sorted(leased.handled) == [(1, 1), (1, 4), (2, 0)]
    assert {p: processor.commit_point(p).offset for processor in processors for p in processor.partitions} == {
        ONE: 5,
        TWO: 1,
    }
    assert leased.consumer.paused == {ONE, TWO}, "nothing is read until the next time"


async def test_the_consumer_gets_what_is_known_of_a_log():
    leased, topic_id = Leased({ONE: ["a", "b"], TWO: ["x"]}), uuid4()
    running = leased.run({ONE: Start(1, leader_epoch=7, topic_id=topic_id), TWO: Start(0)})
    await leased.has_handled(2)
    leased.lease_runner.end()
    await running
    assert leased.consumer.sought == {ONE: (1, 7, topic_id), TWO: (0, None, None)}


async def test_a_lease_that_is_revoked_while_its_processor_is_built_does_not_begin():
    leased, may_build = Leased({ONE: ["a", "b"]}), asyncio.Event()
    build = leased._build

    async def slowly(starts):
        await may_build.wait()
        return await build(starts)

    leased.lease_runner = LeaseRunner(leased.consumer, ReadTopics(("t",)), slowly, leased._report, 0.0, CLOCK)
    running = leased.run({ONE: Start(0)})
    asked = asyncio.create_task(leased.lease_runner.revoke(frozenset({ONE}), 0.0))
    await until(lambda: leased.lease_runner._revocations)
    may_build.set()
    assert set(await asked) == set(leased.processors)
    assert not await running
    assert leased.handled == []


async def test_when_the_time_is_up_nothing_more_is_begun():
    leased = Leased({ONE: ["slow", "slow", "a"]})
    running = leased.run({ONE: Start(0)})
    await leased.has_handled(1)
    leased.lease_runner.end()
    [processor] = await running
    assert [record.offset for record in processor.in_flight_or_pending] == [0]
    leased.gate.set()
    await until(lambda: not processor.in_flight_or_pending)
    assert leased.handled == [(1, 2), (1, 0)], "the call in flight has ended, and its successor did not begin"
    assert processor.full_commit_point(ONE).offset == 1
    assert processor.full_commit_point(ONE).runs == ((2, 2),)
    await processor.drain(CLOCK.monotonic())


async def test_it_reports_and_returns_revoked_partitions_while_calls_are_in_flight(monkeypatch):
    monkeypatch.setattr("multilane.engines.lease_runner._REPORT_EVERY", 0.01)
    leased = Leased({ONE: ["slow"], TWO: ["slow", "a"]})
    running = leased.run({ONE: Start(0), TWO: Start(0)}, patience=LONG)
    await leased.has_handled(1)
    leased.lease_runner.end()
    await until(lambda: all(processor._pools[MAIN]._must_check for processor in leased.processors))
    leased.reported.clear()
    await until(lambda: leased.reported)
    [given] = await leased.lease_runner.revoke(frozenset({TWO}), 0.0)
    assert given.partitions == {TWO}
    assert not running.done()
    leased.gate.set()
    [processor] = await running
    assert processor.partitions == {ONE}
    assert processor.commit_point(ONE).offset == 1


async def test_its_time():
    leased = Leased({ONE: ["a"]})
    [processor] = await leased.run({ONE: Start(0)}, seconds=0.05)
    assert not processor.in_flight_or_pending


async def test_it_reports_progress(monkeypatch):
    monkeypatch.setattr("multilane.engines.lease_runner._REPORT_EVERY", 0.01)
    leased = Leased({ONE: ["a"]})
    running = leased.run({ONE: Start(0)})
    await until(
        lambda: any(processor.commit_point(ONE).offset == 1 for several in leased.reported for processor in several)
    )
    leased.lease_runner.end()
    await running


async def test_keys_that_are_in_flight_elsewhere_wait():
    held = Record("t", 1, 0, 0, 0, b"b", None)
    leased = Leased({ONE: ["a", "b", "c", "b"]}, held=[held])
    running = leased.run({ONE: Start(0)})
    await leased.has_handled(2)
    leased.lease_runner.end()
    [processor] = await running
    assert leased.handled == [(1, 0), (1, 2)]
    assert processor.full_commit_point(ONE).offset == 1
    assert processor.full_commit_point(ONE).runs == ((2, 2),)


async def test_a_key_goes_on_when_its_calls_elsewhere_have_ended():
    first, second = (Record("t", 1, offset, 0, 0, b"b", None) for offset in (0, 1))
    leased = Leased({ONE: ["a", "b"]}, held=[first, second])
    running = leased.run({ONE: Start(0)})
    await leased.has_handled(1)
    leased.processors[0].release_held([first])
    leased.consumer.logs[ONE].append("c")
    await leased.has_handled(2)
    assert leased.handled == [(1, 0), (1, 2)], "another worker still processes the key"
    leased.processors[0].release_held([second])
    await leased.has_handled(3)
    leased.lease_runner.end()
    await running
    assert leased.handled[-1] == (1, 1)


async def test_a_topic_that_is_read_whole_begins_at_its_beginning_where_no_offset_is_known():
    leased = Leased({ONE: ["a", "b"]}, whole={"t"})
    leased.consumer.reset_to = 2
    running = leased.run({ONE: Start(-1)})
    await leased.has_handled(2)
    leased.lease_runner.end()
    await running


async def test_one_lease_is_revoked_and_the_others_go_on():
    leased = Leased({ONE: ["a"], TWO: ["b"]})
    running = leased.run({ONE: Start(0), TWO: Start(0)})
    await leased.has_handled(2)
    [given] = await leased.lease_runner.revoke(frozenset({ONE}), 1.0)
    assert given.commit_point(ONE).offset == 1
    leased.consumer.logs[ONE].append("c")
    leased.consumer.logs[TWO].append("d")
    await leased.has_handled(3)
    leased.lease_runner.end()
    [processor] = await running
    assert processor.partitions == {TWO}
    assert (1, 1) not in leased.handled
    assert await asyncio.wait_for(leased_again(leased), 30.0) == []


async def leased_again(leased):
    """With nothing to do it is over at once."""
    return list(
        await LeaseRunner(leased.consumer, ReadTopics(("t",)), leased._build, leased._report, 0.0, CLOCK).run(
            {}, LONG, 0.0
        )
    )


async def test_a_failure_of_a_lane_ends_it():
    class Broken(TakenOver):
        async def take_over(self, record, error, parking):
            raise RuntimeError("the breaker is open")

    leased = Leased({ONE: ["bad"]}, failures=Broken())
    with pytest.raises(RuntimeError, match="the breaker is open"):
        await leased.run({ONE: Start(0)})


# --- where it has to end ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 1000])
async def test_with_ends_it_is_over_when_all_before_them_is_settled(most):
    leased = Leased({ONE: ["a", "b", "slow", "d", "e"], TWO: ["x", "y"]})
    leased.consumer.most = most
    running = leased.run({ONE: Start(1), TWO: Start(0)}, ends={ONE: 4, TWO: 2})
    await leased.has_handled(4)
    assert not running.done()
    leased.gate.set()
    processors = await asyncio.wait_for(running, 30.0)
    assert sorted(leased.handled) == [(1, 1), (1, 2), (1, 3), (2, 0), (2, 1)]
    places = {p: processor.commit_point(p) for processor in processors for p in processor.partitions}
    assert places[ONE].offset >= 4
    assert places[TWO].offset == 2


async def test_the_records_before_an_end_may_be_absent(monkeypatch):
    """Markers of transactions, or what compaction took away: only the position gets there."""
    monkeypatch.setattr("multilane.engines.lease_runner._REPORT_EVERY", 0.01)

    class Marked(LeaseConsumer):
        async def position(self, partition, timeout=None):
            return 5 if await super().position(partition, timeout) == 3 else 0

    leased = Leased({ONE: ["a", "b", "c"]})
    leased.consumer.__class__ = Marked
    [processor] = await asyncio.wait_for(leased.run({ONE: Start(0)}, ends={ONE: 5}), 30.0)
    assert leased.handled == [(1, 0), (1, 1), (1, 2)]
    assert processor.commit_point(ONE).offset == 5


async def test_everything_before_an_end_was_settled_before():
    leased = Leased({ONE: ["a", "b", "c", "d"]})
    await asyncio.wait_for(leased.run({ONE: Start(1, ((2, 2),))}, ends={ONE: 3}), 30.0)
    assert leased.handled == [(1, 1)]


async def test_a_partition_at_its_end_is_not_read_on_while_others_are():
    leased = Leased({ONE: ["a"], TWO: ["slow"]})
    running = leased.run({ONE: Start(0), TWO: Start(0)}, ends={ONE: 1, TWO: 1})
    await leased.has_handled(1)
    leased.consumer.logs[ONE] += ["b", "c"]
    leased.processors[0].feed()
    await until(lambda: leased.consumer.paused == {ONE, TWO})
    leased.gate.set()
    await asyncio.wait_for(running, 30.0)
    assert sorted(leased.handled) == [(1, 0), (2, 0)]


async def test_a_run_can_end_before_its_ends_are_reached():
    leased = Leased({ONE: ["a"]})
    running = leased.run({ONE: Start(0)}, ends={ONE: 9})
    await leased.has_handled(1)
    leased.lease_runner.end()
    [processor] = await asyncio.wait_for(running, 30.0)
    assert processor.commit_point(ONE).offset == 1
