"""Blocks that somebody brings: all of them are settled in the end, and what became of each record is told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from lane_world import block_of, until
from multilane.clock import SystemClock
from multilane.commit.journal import RecordOutcome
from multilane.commit.ledger import Ledger
from multilane.engines.dataframe import block_runner as module
from multilane.engines.dataframe.block_runner import BlockRunner
from multilane.errors import BreakerOpen, RegistryUnavailable, WrongRows
from multilane.lanes.chains import Chains
from multilane.lanes.failing import Failing, FailureRoutes
from multilane.lanes.intake import Intake
from multilane.lanes.ordering import by_key
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
from multilane.outcome.breaker import Breaker
from multilane.outcome.next_step import Publish, RetryPolicy
from multilane.wire.records.record import Record

CLOCK = SystemClock()
LONG = 60.0
RETRIED = RetryPolicy("t", retry="t-retry", error="t-error", retry_count=1)


@dataclass
class Stored:
    """A publisher whose acknowledgements come when a test lets them."""

    copies: list[Publish] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def publish(self, copy):
        self.copies.append(copy)
        await self.gate.wait()
        return 0, len(self.copies)


class Hauled:
    """A haul whose handler waits at `slow` keys and fails at `bad` ones."""

    def __init__(self, retry_policy=RETRIED, window=None, handler=None, breaker=None):
        self.handled: list[tuple[int, int]] = []
        self.gate = asyncio.Event()
        self.stored = Stored()
        self.stored.gate.set()
        self._retry_policy, self._window, self._breaker = retry_policy, window or Window(), breaker
        self._handler = handler or self._handle
        self.processors: list[PartitionProcessor] = []
        self.block_runner = BlockRunner(self._build, CLOCK)

    async def _handle(self, record: Record) -> None:
        if record.key == b"slow":
            await self.gate.wait()
        if record.key == b"bad":
            raise ValueError("not today")
        self.handled.append((record.partition, record.offset))

    async def _build(self, starts, verdicts):
        [(partition, start)] = starts.items()
        as_rows = not self._window.is_single
        intake = Intake(partition, Ledger(*start[:3], in_bulk=as_rows), 1000)
        is_unique = self._window.select is newest_of_each_key
        rows = RowChains(partition.topic, partition.partition, 4, newest=is_unique) if as_rows else None
        queue = PartitionQueue([intake], {MAIN: rows or Chains(by_key(), 4)})
        interceptors = InterceptorChain("g")
        listener = Listener(self._handler, read_signature(self._handler), self._window, interceptors, Threads("lane"))
        failing = Failing(
            FailureRoutes(self._retry_policy, self.stored, breaker=self._breaker), interceptors, CLOCK, notes=verdicts
        )
        work = Work(queue, listener, failing, WorkRules(LONG))
        self.processors.append(PartitionProcessor(queue, work, {MAIN: 4}, CLOCK))
        return self.processors[-1]


def told(*some) -> dict[int, str]:
    """Outcomes by offset, of one partition."""
    return {
        int(offset): verdict.outcome.value
        for settled in some
        for one in settled
        for offset, verdict in zip(one.offsets, one.verdicts, strict=True)
    }


async def test_all_of_it_is_handled_and_reported_once():
    world = Hauled()
    first = await world.block_runner.process([block_of("abab"), replace(block_of("xy", 7), partition=5)])
    second = await world.block_runner.process([block_of("aa", 10)])
    last = await world.block_runner.finish()
    places = sorted((one.partition.partition, int(o)) for one in (*first, *second, *last) for o in one.offsets)
    assert places == sorted(world.handled)
    assert [offset for partition, offset in places if partition == 5] == [7, 8]
    assert len(places) == 8
    assert set(told(first, second, last).values()) == {"done"}


async def test_it_waits_for_what_is_still_running():
    world = Hauled()
    assert told(await world.block_runner.process([block_of(["a", "slow", "b"])])) == {}
    finishing = asyncio.create_task(world.block_runner.finish())
    await until(lambda: len(world.handled) == 2)
    assert not finishing.done()
    world.gate.set()
    assert told(await finishing) == {0: "done", 1: "done", 2: "done"}


async def test_a_failed_one_is_reported_when_its_copy_is_acknowledged():
    world = Hauled()
    world.stored.gate.clear()
    await world.block_runner.process([block_of(["a", "bad"])])
    finishing = asyncio.create_task(world.block_runner.finish())
    await until(lambda: world.stored.copies)
    assert not finishing.done()
    world.stored.gate.set()
    [settled] = await finishing
    assert [(v.outcome, v.error) for v in settled.verdicts] == [
        (RecordOutcome.DONE, None),
        (RecordOutcome.RETRIED, "ValueError: not today"),
    ]
    assert [copy.topic for copy in world.stored.copies] == ["t-retry"]


async def test_without_its_schema_registry_a_record_stays_and_has_used_up_no_attempt():
    failing = [True]
    handled = []

    async def handle(record: Record) -> None:
        if record.key == b"b" and failing:
            failing.clear()
            raise RegistryUnavailable("down")
        handled.append(record.offset)

    world = Hauled(RetryPolicy("t", error="t-error"), handler=handle)
    first = await world.block_runner.process([block_of("abb")])
    assert told(first, await world.block_runner.finish()) == {0: "done", 1: "done", 2: "done"}
    assert (handled, world.stored.copies) == ([0, 1, 2], [])


@pytest.mark.parametrize("retry_policy", [RetryPolicy("t", error="t-error"), RetryPolicy("t")])
async def test_where_no_retry_is_left_it_is_dead(retry_policy):
    world = Hauled(retry_policy)
    await world.block_runner.process([block_of(["bad"])])
    assert told(await world.block_runner.finish()) == {0: "dead"}
    assert [copy.topic for copy in world.stored.copies] == ([] if retry_policy.error is None else ["t-error"])


async def test_a_window_that_is_not_full_goes_at_the_end():
    calls = []

    async def handle(records: list[Record]) -> None:
        calls.append([record.offset for record in records])

    world = Hauled(window=Window(3, LONG), handler=handle)
    await world.block_runner.process([block_of("abcd")])
    assert told(await world.block_runner.finish()) == {0: "done", 1: "done", 2: "done", 3: "done"}
    assert sorted(map(len, calls)) == [1, 3]


async def test_what_waits_behind_its_key_in_another_window_does_not_wait_for_its_time():
    gate, calls = asyncio.Event(), []

    async def handle(records: list[Record]) -> None:
        calls.append([record.offset for record in records])
        await gate.wait()

    world = Hauled(window=Window(2, LONG), handler=handle)
    await world.block_runner.process([block_of("aaa")])
    finishing = asyncio.create_task(world.block_runner.finish())
    await until(lambda: calls)
    gate.set()
    async with asyncio.timeout(LONG / 2):
        await finishing
    assert calls == [[0, 1], [2]]


async def test_what_is_passed_over_for_a_newer_one_is_skipped():
    async def handle(record: Record) -> None:
        assert record.offset != 0

    world = Hauled(window=Window(10, LONG, newest_of_each_key), handler=handle)
    await world.block_runner.process([block_of("aba")])
    assert told(await world.block_runner.finish()) == {0: "skipped", 1: "done", 2: "done"}


async def test_who_brings_too_much_waits(monkeypatch):
    monkeypatch.setattr(module, "_MAX_WAITING", 10_000)
    world = Hauled()
    bringing = asyncio.create_task(world.block_runner.process([block_of(["slow"] * 2_000)]))
    await until(lambda: world.processors and world.processors[0].in_flight)
    assert not bringing.done()
    world.gate.set()
    some = await bringing
    assert set(told(some, await world.block_runner.finish()).values()) == {"done"}
    assert len(world.handled) == 2_000


async def test_a_lane_that_cannot_go_on_ends_it():
    world = Hauled(breaker=Breaker(0.1, 60.0, 1))
    await world.block_runner.process([block_of(["bad"])])
    with pytest.raises(BreakerOpen):
        await world.block_runner.finish()
    await world.block_runner.abort()


async def test_it_can_be_given_up():
    world = Hauled()
    await world.block_runner.process([block_of(["slow", "slow"])])
    await world.block_runner.abort()
    assert world.handled == []


async def test_rows_that_come_back_are_refused():
    world = Hauled()
    await world.block_runner.process([block_of("ab", 5)])
    with pytest.raises(WrongRows, match=r"offset 6 comes after 6\."):
        await world.block_runner.process([block_of("c", 6)])
    await world.block_runner.abort()
