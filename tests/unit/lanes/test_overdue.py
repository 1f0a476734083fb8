"""Calls that do not end: substitute lanes, and when the partition stands still."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from lane_world import World, record_of, turns, until
from multilane.lanes.failure_log import name_of
from multilane.lanes.interpreter import run_to_end
from multilane.lanes.slow_calls import SlowCalls
from multilane.lanes.work import WorkRules
from multilane.wire.records.record import Record


class Stubborn:
    """Ignores its cancellation for keys that begin with `hang`, until it is released."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.handled: list[int] = []

    async def __call__(self, record: Record) -> None:
        while record.key.startswith(b"hang") and not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        self.handled.append(record.offset)


async def test_a_substitute_lane_replaces_a_coroutine_that_ignores_its_cancellation():
    """All three lanes hung, and the partition stood still."""
    handler = Stubborn()
    async with World(handler, lanes=3) as world:
        await world.give("hang1", "hang2", "hang3", "a", "b", "hang1")
        await world.sweep_after(1.5)
        assert handler.handled == [], "they may end within a second"
        await world.sweep_after(1.5)
        await until(lambda: len(handler.handled) == 2)
        assert handler.handled == [3, 4], "their keys wait"
        handler.let_go.set()
        await until(lambda: world.is_done)
        await turns()
        assert sorted(handler.handled) == [0, 1, 2, 3, 4, 5]
        assert (world.failures.failed, world.errors) == ([], [])
        assert len(world.pool._lanes) == 3


class Hanging:
    """A `def` function that hangs for keys that begin with `hang`, until it is released."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.begun: list[int] = []
        self.handled: list[int] = []

    def __call__(self, record: Record) -> None:
        self.begun.append(record.offset)
        if record.key.startswith(b"hang"):
            self.let_go.wait(60)
        self.handled.append(record.offset)


async def _sweep_until(world: World, what: Callable[[], object]) -> None:
    """Calls of `def` functions begin on their threads, whenever these get to it."""
    async with asyncio.timeout(30):
        while not what():
            await world.sweep_after(1.5)
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)


@pytest.mark.parametrize("more_lanes", [True, False])
async def test_ten_times_as_many_hung_plain_functions_as_lanes_keep_only_their_keys(more_lanes, caplog):
    """Beyond twice as many the partition stood still."""
    handler = Hanging()
    async with World(handler, lanes=2, rules=WorkRules(1.0, has_more_lanes_than_threads=more_lanes)) as world:
        await world.give(*[f"hang{i}" for i in range(20)], "a", "b", "hang1", "a")
        await _sweep_until(world, lambda: len(handler.handled) == 3)
        assert sorted(handler.handled) == [20, 21, 23], "the key of a hung call goes on"
        await _sweep_until(world, lambda: world.pool._overdue.substitutes == 20)
        assert (world.frontier, world.work.slow_calls.substitutes) == (0, 20)
        assert name_of(record_of("hang0", 0)) in caplog.text
        assert "lanes/test_overdue.py:" in caplog.text, "the line at which they hang is not named"
        assert "is stuck" not in caplog.text
        handler.let_go.set()
        await until(lambda: world.is_done)
        await turns()
        assert world.work.slow_calls.substitutes == 0
        assert len(world.pool._lanes) == (3 if more_lanes else 2)
        assert len(world.failures.failed) == 20, "they ended too late"


async def test_a_line_about_hung_calls_comes_every_thirty_seconds(caplog):
    handler = Hanging()
    async with World(handler, lanes=2, rules=WorkRules(1.0, has_more_lanes_than_threads=True)) as world:
        await world.give(*[f"hang{i}" for i in range(10)])
        await _sweep_until(world, lambda: world.pool._overdue.substitutes == 10)
        since = world.clock.monotonic()
        for _ in range(60):
            await world.sweep_after(1.0)
        lines = [r.message for r in caplog.records if "and do not end" in r.message]
        assert len(lines) <= 1 + world.clock.monotonic() // 30
        assert world.clock.monotonic() - since >= 60
        assert "10 calls of" in lines[-1]
        assert "(and 7 more), at lanes/test_overdue.py:" in lines[-1]
        handler.let_go.set()


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
async def test_a_partition_whose_calls_all_hang_says_so_and_goes_on_when_one_ends(kind, caplog):
    handler, plain = Stubborn(), Hanging()
    caplog.set_level(logging.WARNING)
    rules = WorkRules(1.0, has_more_lanes_than_threads=True, slow_calls=SlowCalls(most_substitutes=3))
    async with World(handler if kind == "coroutine" else plain, lanes=2, rules=rules) as world:
        await world.give(*[f"hang{i}" for i in range(6)], "a")
        await _sweep_until(world, lambda: "is stuck" in caplog.text)
        for _ in range(8):
            await world.sweep_after(1.5)
        lines = [r.message for r in caplog.records if "is stuck" in r.message]
        assert "5 calls of" in lines[0]
        assert "with 3 substitute lanes the limit of the consumer is reached" in lines[0]
        assert "t-3@0, key #" in lines[0]
        assert "at lanes/test_overdue.py:" in lines[0]
        assert len(lines) < 3, "once in thirty seconds is enough"
        assert world.frontier == 0
        handler.let_go.set()
        plain.let_go.set()
        await until(lambda: world.is_done)
        await world.sweep_after(0.0)
        assert any("resumes: a hung call" in r.message for r in caplog.records)


async def test_partitions_that_reach_the_limit_leave_others_as_many_substitutes_as_lanes():
    handler, slow_calls = Hanging(), SlowCalls(most_substitutes=3)
    rules = WorkRules(1.0, has_more_lanes_than_threads=True, slow_calls=slow_calls)
    async with World(handler, lanes=2, rules=rules) as one, World(handler, lanes=2, rules=rules) as other:
        await one.give(*[f"hang{i}" for i in range(6)])
        await _sweep_until(one, lambda: one.pool._overdue.substitutes == 3)
        await other.give("hang1", "hang2", "a")
        await _sweep_until(other, lambda: 2 in handler.handled)
        assert (other.pool._overdue.substitutes, slow_calls.substitutes) == (2, 5)
        handler.let_go.set()
    assert slow_calls.substitutes == 0, "a partition that was given up counts no more"


async def test_hung_calls_that_fill_the_partition_are_reported(caplog):
    """The partition takes in no more than it may have open. It stood still without a word."""
    handler = Hanging()
    async with World(handler, lanes=2, rules=WorkRules(1.0, has_more_lanes_than_threads=True), room=8) as world:
        await world.give(*[f"hang{i}" for i in range(20)], "a")
        await _sweep_until(world, lambda: "is stuck" in caplog.text)
        assert len(handler.begun) <= 8
        assert "as many as a partition may have open" in caplog.text
        handler.let_go.set()
        await until(lambda: world.is_done)
        await world.sweep_after(0.0)
        assert "resumes: a hung call has returned" in caplog.text


async def test_when_the_system_refuses_threads_calls_wait_for_one(monkeypatch, caplog):
    """The records failed, with `can't start new thread`."""
    started, most = [], 1

    def start(thread: threading.Thread) -> None:
        if len(started) >= most:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        begin(thread)

    begin = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    handler = Hanging()
    async with World(handler, lanes=4, rules=WorkRules(60.0, has_more_lanes_than_threads=True)) as world:
        await world.give("hang1", "a", "b", "c")
        assert world.failures.failed == []
        assert "the system starts no more" in caplog.text
        assert len(world.threads) == 1
        most = 4
        world.threads._try_again()
        await until(lambda: len(handler.handled) == 3)
        handler.let_go.set()
        await until(lambda: world.is_done)
        assert (world.failures.failed, world.errors) == ([], [])


def test_the_end_of_a_loop_does_not_wait_for_a_task_that_ignores_its_cancellation(caplog):
    never = threading.Event()

    async def main():
        async def hang():
            while True:
                try:
                    await asyncio.get_running_loop().create_future()
                except asyncio.CancelledError:
                    continue

        tasks.append(asyncio.create_task(hang()))
        tasks.append(asyncio.create_task(asyncio.to_thread(never.wait)))
        await turns()

    tasks = []
    run_to_end(main())  # a join would take for ever
    assert "abandoning a task that ignores its cancellation" in caplog.text
    never.set()


DEAF = """
import asyncio
from multilane.lanes.failure_log import name_of
from multilane.lanes.interpreter import run_to_end

async def deaf():
    while True:
        try:
            await asyncio.sleep(1_000)
        except BaseException:
            pass

async def main():
    asyncio.create_task(deaf())
    await asyncio.sleep(0)

run_to_end(main())
"""


def test_a_coroutine_that_ignores_even_its_closing_does_not_keep_the_process():
    """It went on forever without an event loop: a busy loop during the process's exit, out of reach of the forced
    exit."""
    assert subprocess.run([sys.executable, "-c", DEAF], check=False, timeout=60).returncode == 0
