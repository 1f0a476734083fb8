"""Last steps that take longer than maxProcessingTime, and lanes that wait for one that never returns."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import suppress

import pytest

from lane_world import World, turns, until
from multilane.lanes import failing
from multilane.lanes.failing import Failing, FailureRoutes
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.window import Window
from multilane.outcome.next_step import RetryPolicy
from multilane.wire.records.record import Record


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr(failing, "_SHORTEST_REST", 0.001)


class Failed(World):
    """Records of the key `bad` fail, and no topic takes them."""

    def __init__(self, last_step, handler=None, **more) -> None:
        self.handled: list[int] = []
        super().__init__(handler or self.one, **more)
        routes = FailureRoutes(RetryPolicy("t"), None, last_step=last_step)
        self.work.settling.failures = Failing(routes, InterceptorChain("g"), self.clock)

    async def one(self, record: Record) -> None:
        self.handled.append(record.offset)
        if record.key == b"bad":
            raise ValueError("bad")


async def test_a_coroutine_is_cancelled_and_called_again(caplog):
    """It stopped its key for ever, and nothing was logged."""
    called, cancelled = [], []

    async def last(context, record, error):
        called.append(record.offset)
        if len(called) == 1:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.append(record.offset)
                raise

    async with Failed(last, lanes=1) as world:
        await world.give("bad", "a")
        await world.sweep_after(0.5)
        assert (called, cancelled) == ([0], [])
        await world.sweep_after(0.6)
        await until(lambda: world.is_done)
        assert (called, cancelled, world.handled) == ([0, 0], [0], [0, 1])
        assert "the last step failed for Record(t-3@0" in caplog.text
        assert "took longer than 1 s (maxProcessingTime)" in caplog.text
        assert (world.errors, world.pool._overdue.substitutes) == ([], 0)


@pytest.mark.parametrize("kind", ["plain", "deaf"])
async def test_one_that_never_returns_leaves_its_lane_to_a_substitute(kind, caplog):
    """Two of them stopped a partition with two lanes without a word."""
    release, calls = threading.Event(), []

    def plain(context, record, error):
        calls.append(record.offset)
        release.wait()

    async def deaf(context, record, error):
        calls.append(record.offset)
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)

    async with Failed(plain if kind == "plain" else deaf, lanes=1) as world:
        await world.give("bad", "a", "bad", "b")
        await until(lambda: calls)
        await world.sweep_after(1.1)
        await world.sweep_after(1.1)
        await until(lambda: len(world.handled) == 3)
        assert (world.handled, calls) == ([0, 1, 3], [0])
        assert "has exceeded maxProcessingTime (1 s) with Record(t-3@0" in caplog.text
        assert world.frontier == 0
        release.set()
        await until(lambda: world.is_done)
        await turns()
        assert (calls, world.errors) == ([0, 2], []), "one that returns late has succeeded"
        assert (world.pool._overdue.substitutes, len(world.pool._lanes)) == (0, 1)


async def test_a_partition_whose_last_steps_all_hang_says_so(caplog):
    release = threading.Event()
    async with Failed(lambda context, record, error: release.wait(), lanes=1, handler=_fails) as world:
        world.work.slow_calls.most_substitutes = 1
        await world.give(*"abcd")
        for _ in range(3):
            await world.sweep_after(1.1)
        assert "is stuck: 2 calls of" in caplog.text
        release.set()
        await until(lambda: world.is_done)
        await world.sweep_after(0.0)
        assert "resumes: a hung call has returned" in caplog.text


async def test_one_that_hangs_does_not_end_those_of_its_window():
    ended, never = [], asyncio.get_running_loop().create_future()

    async def last(context, record, error):
        if record.offset == 0 and not ended:
            await never
        ended.append(record.offset)

    async def fail_all(records: list[Record]) -> None:
        raise ValueError("bad")

    async with Failed(last, handler=fail_all, lanes=1, window=Window(3, 0.001)) as world:
        await world.give(*"abc")
        await until(lambda: len(ended) == 2)
        await world.sweep_after(1.1)
        await until(lambda: world.is_done)
        assert ended == [1, 2, 0]


async def test_one_that_leaves_the_process_is_called_again():
    called = []

    async def last(context, record, error):
        called.append(record.offset)
        if len(called) == 1:
            sys.exit(1)

    async with Failed(last, lanes=1) as world:
        await world.give("bad")
        await until(lambda: world.is_done)
        assert (called, world.errors) == ([0, 0], [])


async def test_the_end_of_the_lanes_ends_it_too():
    ended = []

    async def last(context, record, error):
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(record.offset)

    async with Failed(last, lanes=1) as world:
        await world.give("bad")
        [left] = await world.processor.drain(world.clock.monotonic())
        assert (ended, left.offset, world.frontier) == ([0], 0, 0)


async def _fails(record: Record) -> None:
    raise ValueError("bad")
