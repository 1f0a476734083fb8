"""The outage gate together with hung calls, the fence, draining and manual acknowledgements."""

from __future__ import annotations

import asyncio
import threading
from math import inf

from lane_world import PARTITION, TakenOver, World, turns, until
from multilane.lanes.begun import Name
from multilane.lanes.crashes import Suspicion
from multilane.lanes.fence import Fence
from multilane.lanes.gate import OutageGate
from multilane.lanes.processes import WorkerGate as Turns
from multilane.lanes.threads import Threads
from multilane.lanes.watch import Watch
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.acknowledgement import Acknowledgement
from multilane.listeners.window import Window
from multilane.outcome.backoff import RetryDelay
from multilane.outcome.in_place import retried
from multilane.outcome.outage import SUSPICION, Outage, OutageRules
from multilane.wire.records.record import Record


class Staying(TakenOver):
    """Failed records stay if the gate says so; otherwise they are settled."""

    guard: OutageGate

    async def take_over(self, record, error, parking):
        self.failed.append((record.offset, type(error).__name__))
        return self.guard.stays(record, error)


class Deadline:
    fenced_after = inf


class OneAtATime(Threads):
    """Calls wait for their turn, as with one worker process."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.gate = Turns(lambda: 1)

    def __bool__(self) -> bool:
        return True


class Gated(World):
    """A world with a gate and a fence, on the world's clock."""

    def __init__(self, handler, *, is_manual=False, watch=None, **more) -> None:
        self.gate = OutageGate("c", Outage(OutageRules(minimum=3), RetryDelay("fixed", 1.0)), self)
        self.fence = Fence("c", self)
        self.deadline = Deadline()
        self.fence.watch(self.deadline)
        rules = WorkRules(
            5.0, is_manual, retries_in_place=True, gate=self.gate, fence=self.fence, watch=watch or Watch()
        )
        super().__init__(handler, rules=rules, **more)
        self.failures = self.work.settling.failures = Staying()
        self.failures.guard = self.gate
        self.gate.count_in(self.queue)

    def monotonic(self) -> float:
        return self.clock.monotonic()

    async def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.pool.supply.wake_deferred()
        self.gate._tick()
        await turns()

    async def pause(self) -> None:
        """Three records of different keys fail, and nothing else happens."""
        await self.give("a", "b", "c")
        await until(lambda: len(self.failures.failed) == 3)
        await self.after(SUSPICION)
        assert self.gate.is_shut

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        self.gate.close()


async def test_a_probe_that_hangs_on_its_thread_does_not_keep_the_others_waiting():
    hangs, calls = threading.Event(), []

    def handler(record: Record) -> None:
        calls.append(record.offset)
        if len(calls) == 4:
            hangs.wait()
        if len(calls) < 5:
            raise OSError("down")

    async with Gated(handler, lanes=4) as world:
        await world.pause()
        await world.give("d", "e")
        await world.after(2.0)
        await until(lambda: len(calls) == 4)  # the probe, which does not end
        await world.sweep_after(6.0)
        await world.after(4.0)
        await until(lambda: len(calls) > 4)
        await until(lambda: not world.gate.is_shut)
        hangs.set()


async def test_a_probe_that_the_fence_cancels_proves_nothing():
    hangs, calls = asyncio.Event(), []

    async def handler(record: Record) -> None:
        calls.append(record.offset)
        if len(calls) == 4:
            await hangs.wait()
        raise OSError("down")

    async with Gated(handler) as world:
        await world.pause()
        await world.after(2.0)
        assert len(calls) == 4
        world.deadline.fenced_after = world.clock.monotonic() - 1.0
        assert world.fence.check()
        await turns()
        world.deadline.fenced_after = inf
        assert not world.fence.check()
        await turns()
        assert world.gate.is_shut


async def test_a_lane_that_comes_to_a_shut_gate_after_its_pool_drains_ends():
    hangs, calls = asyncio.Event(), []

    async def handler(record: Record) -> None:
        calls.append(record.offset)
        if len(calls) == 4:
            await hangs.wait()
        raise OSError("down")

    async with Gated(handler) as world:
        await world.pause()
        await world.give("d", "e")
        await world.after(2.0)
        assert len(calls) == 4
        resting = asyncio.create_task(world.processor.wait_until_idle(world.clock.monotonic() + 3600.0))
        await turns()
        assert not resting.done()
        hangs.set()
        await turns()
        assert resting.done()


async def test_a_lane_that_comes_to_a_shut_fence_after_its_pool_drains_ends():
    hangs = asyncio.Event()

    async def handler(record: Record) -> None:
        try:
            await hangs.wait()
        except asyncio.CancelledError:
            await hangs.wait()

    async with Gated(handler) as world:
        await world.give("a")
        world.deadline.fenced_after = world.clock.monotonic() - 1.0
        assert world.fence.check()
        resting = asyncio.create_task(world.processor.wait_until_idle(world.clock.monotonic() + 3600.0))
        await turns()
        hangs.set()
        await turns()
        assert resting.done()


async def test_a_probe_that_nobody_acknowledges_does_not_keep_the_others_waiting():
    """A function may acknowledge several records together: it must get them."""
    calls, held = [], []

    async def handler(record: Record, acknowledgement: Acknowledgement) -> None:
        calls.append(record.offset)
        if len(calls) < 4:
            raise OSError("down")
        held.append(acknowledgement)
        if len(held) == 3:
            for one in held:
                one.acknowledge()

    async with Gated(handler, is_manual=True) as world:
        await world.pause()
        await world.give("d", "e", "f", "g")
        for _ in range(20):
            await world.after(1.0)
        assert len(held) >= 3
        assert not world.gate.is_shut


async def test_a_probe_that_gets_no_thread_does_not_keep_the_others_waiting():
    async def handler(record: Record) -> None:
        raise OSError("down")

    async with Gated(handler, lanes=1) as world:
        await world.pause()
        world.gate._offer = lambda: None  # nobody begins
        world.clock.advance(2.0)
        del world.gate._offer
        world.gate._tick()
        probed = world.gate._probe
        assert probed is not None
        world.gate._tick()  # it has still not begun
        assert world.gate._probe is None
        assert world.gate.is_shut


async def test_a_record_that_waited_for_its_turn_does_not_begin_behind_the_fence():
    """With worker processes most lanes wait for one. A process that was stopped meanwhile may no longer be a member."""
    begun, ends = [], threading.Event()

    def handler(record: Record) -> None:
        begun.append(record.offset)
        ends.wait()

    runner = OneAtATime("lane")
    async with Gated(handler, runner=runner, lanes=3) as world:
        await world.give("a", "b", "c")
        await until(lambda: begun)
        world.deadline.fenced_after = world.clock.monotonic() - 1.0
        ends.set()
        await until(lambda: world.frontier == 1)
        await turns()
        assert begun == [0]
        world.deadline.fenced_after = inf
        world.fence.check()
        await until(lambda: world.is_done)
        assert sorted(begun) == [0, 1, 2]
    runner.close()


async def test_windows_with_suspects_keep_the_order_of_a_key():
    """The suspect is handled alone, but not before an earlier record of its key that stays in place."""
    handled, name = [], Name("brokers", "group", *PARTITION)
    watch = Watch(names={PARTITION.topic: name})

    async def handler(records: list[Record]) -> None:
        if (records[0].offset, len(handled)) == (0, 0):
            handled.append("failed")
            raise OSError("down")
        handled.extend(record.offset for record in records)

    class Keeping(TakenOver):
        async def take_over(self, record, error, parking):
            return retried(record, None, 0.0)

    async with Gated(handler, watch=watch, window=Window(3, 60.0)) as world:
        world.work.settling.failures = Keeping()
        watch.isolation.begin(name, Suspicion(((1, 1),)), world.intake.frontier)
        await world.give("a", "a", "b")
        await until(lambda: world.frontier == 0 and 2 in handled)
        world.processor.flush()
        await until(lambda: world.is_done)
    assert handled == ["failed", 2, 0, 1]
