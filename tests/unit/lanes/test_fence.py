"""No record begins after a member's session has expired, until a heartbeat is answered again."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from lane_world import World, turns, until
from multilane.clock import ManualClock
from multilane.lanes.fence import Fence
from multilane.lanes.lane import Lane
from multilane.lanes.threads import NotBegun
from multilane.lanes.work import WorkRules
from multilane.listeners.window import Window
from multilane.wire.records.record import Record

SESSION = 10.0


class Stopped(ManualClock):
    """The clock of a process that is sometimes stopped."""


class Fenced:
    """A world behind a fence, whose member's last heartbeat was at 0."""

    def __init__(self, handler, **more):
        self.member_status = SimpleNamespace(fenced_after=SESSION)
        self.clock = Stopped()
        self.fence = Fence("orders", self.clock)
        self.fence.watch(self.member_status)
        rules = WorkRules(
            1_000.0, fence=self.fence, has_more_lanes_than_threads=more.pop("has_more_lanes_than_threads", False)
        )
        self.world = World(handler, rules=rules, clock=self.clock, **more)

    def stop_for(self, seconds):
        """The process is stopped, and continues."""
        self.clock.advance(seconds)
        self.fence.recheck()

    def answer(self):
        self.member_status.fenced_after = self.clock.monotonic() + SESSION
        self.fence.check()


class Idle:
    """A pool without lanes."""

    def look_up(self): ...

    def interrupt(self): ...


@pytest.mark.parametrize("way", ["plainly", "windows", "unique"])
async def test_a_member_that_was_stopped_beyond_its_session_begins_nothing(way, caplog):
    gate, begun = asyncio.Semaphore(0), []

    async def single(record: Record) -> None:
        begun.append(record.offset)
        await gate.acquire()

    async def batch(records: list[Record]) -> None:
        begun.extend(record.offset for record in records)
        await gate.acquire()

    window = {"windows": Window(2, 0.01), "unique": Window(2, 0.01, lambda records: (records, []))}.get(way, Window())
    fenced = Fenced(batch if way == "windows" else single, lanes=1, window=window)
    async with fenced.world as world:
        await world.give(*"abcdef")
        await until(lambda: begun)
        before = list(begun)
        fenced.stop_for(SESSION + 1)
        await turns()
        assert begun == before, "it began something after it went on"
        assert world.frontier == 0, "the call in flight was cancelled"
        assert "starts no record" in caplog.text
        fenced.answer()
        for _ in range(8):
            gate.release()
        await until(lambda: world.is_done)
        assert set(begun) == set(range(6))
        assert (world.failures.failed, world.errors) == ([], [])
        assert world.failures.interrupted == before, "its call may have had an effect, and was made again"


@pytest.mark.parametrize("lanes", [1, 8])
async def test_a_pause_that_nobody_tells_of_begins_nothing_either(lanes):
    """A virtual machine that was paused gets no SIGCONT. Each lane began up to 64 records that others had begun."""
    begun, gate = [], asyncio.Event()

    async def handler(record: Record) -> None:
        begun.append(record.offset)
        if record.offset < lanes:
            await gate.wait()

    fenced = Fenced(handler, lanes=lanes)
    async with fenced.world as world:
        await world.give(*[f"k{i}" for i in range(600)])
        await until(lambda: len(begun) == lanes)
        fenced.clock.advance(SESSION + 1)
        gate.set()
        await turns()
        assert len(begun) == lanes
        fenced.answer()
        await until(lambda: world.is_done)
        assert set(begun) == set(range(600))


async def test_a_pause_between_two_calls_that_never_wait_begins_nothing_either():
    """Within one turn of a lane, which lasts 64 records."""
    begun = []

    async def handler(record: Record) -> None:
        begun.append(record.offset)
        if record.offset == 5:
            fenced.clock.advance(SESSION + 1)

    fenced = Fenced(handler, lanes=1)
    async with fenced.world as world:
        await world.give(*[f"k{i}" for i in range(60)])
        assert begun == [0, 1, 2, 3, 4, 5]
        fenced.answer()
        await until(lambda: world.is_done)
        assert sorted(set(begun)) == list(range(60))


async def test_a_shorter_stop_changes_nothing():
    begun = []

    async def handler(record: Record) -> None:
        begun.append(record.offset)

    fenced = Fenced(handler, lanes=2)
    async with fenced.world as world:
        await world.give(*"abc")
        fenced.stop_for(SESSION - 1)
        await world.give(*"def")
        await until(lambda: world.is_done)
        assert sorted(begun) == list(range(6))


async def test_a_call_that_waits_for_a_thread_does_not_begin():
    go, begun = threading.Event(), []

    def handler(record: Record) -> None:
        begun.append(record.offset)
        go.wait(30)

    fenced = Fenced(handler, lanes=1, has_more_lanes_than_threads=True)
    async with fenced.world as world:
        await world.give(*"abc")
        await until(lambda: begun)
        fenced.stop_for(SESSION + 1)
        go.set()
        await until(lambda: world.frontier == 1)
        assert begun == [0]
        fenced.answer()
        await until(lambda: world.is_done)
        assert begun == [0, 1, 2]


async def test_a_thread_waits_for_the_loop_that_may_have_to_drain_first():
    """A lease is renewed for the whole consumer, even if one of its partitions was revoked meanwhile."""
    clock, deadline, pool = ManualClock(), SimpleNamespace(fenced_after=SESSION), Idle()
    fence, lane = Fence("orders", clock), Lane()
    fence.watch(deadline)
    fence.join(pool)
    clock.advance(SESSION + 1)
    assert fence.check()
    deadline.fenced_after = clock.monotonic() + SESSION  # renewed, and the loop is still busy with earlier messages
    beginning = asyncio.create_task(asyncio.to_thread(fence.begin_on_thread, pool, lane))
    await turns()
    fence.leave(pool)
    with pytest.raises(NotBegun):
        await beginning
    assert not lane.is_calling


async def test_lanes_behind_a_shut_fence_are_drained():
    """The partitions are lost: the drain does not wait for the fence."""

    async def handler(record: Record) -> None:
        await asyncio.get_running_loop().create_future()

    fenced = Fenced(handler, lanes=2)
    async with fenced.world as world:
        await world.give(*"abc")
        fenced.stop_for(SESSION + 1)
        await turns()
        async with asyncio.timeout(10):
            await world.processor.drain(world.clock.monotonic())
        assert world.errors == []


async def test_the_fence_is_looked_at_in_time_for_the_end_of_the_session_and_more_often_while_it_is_shut():
    """An idle member has one look a second, and no timer of its own."""
    clock = ManualClock()
    fence = Fence("orders", clock)
    status = SimpleNamespace(fenced_after=SESSION)
    fence.watch(status)
    pool = Idle()
    fence.join(pool)
    fence._look()
    assert fence._timer is None
    clock.advance(SESSION - 0.5)
    fence._look()
    assert fence._timer is not None
    assert not fence.is_shut
    clock.advance(1.0)
    fence._timer.cancel()
    fence._tick()
    assert fence.is_shut
    assert fence._timer is not None
    status.fenced_after = clock.monotonic() + SESSION
    fence._timer.cancel()
    fence._tick()
    assert not fence.is_shut
    assert fence._timer is None
    fence.leave(pool)
