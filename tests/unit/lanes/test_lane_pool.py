"""Lanes: order, slow keys, failures, overdue calls, and draining."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from lane_world import World, block_of, turns, until
from multilane.lanes.ordering import one_chain
from multilane.lanes.work_rules import WorkRules
from multilane.wire.records.record import Record


class Gates:
    """A handler that waits on request, and records what it does."""

    def __init__(self, *held: str) -> None:
        self.events = {key.encode(): asyncio.Event() for key in held}
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.in_work: set[bytes | None] = set()

    async def __call__(self, record: Record) -> None:
        assert record.key is None or record.key not in self.in_work, "two of one key at once"
        self.in_work.add(record.key)
        self.begun.append(record.offset)
        if record.key in self.events:
            await self.events[record.key].wait()
        self.in_work.discard(record.key)
        self.ended.append(record.offset)

    def open(self, key: str) -> None:
        self.events[key.encode()].set()


async def test_everything_is_handled_once_and_settled():
    handler = Gates()
    async with World(handler) as world:
        await world.give(*"abcabcabc")
        assert sorted(handler.ended) == list(range(9))
        assert world.is_done
        assert world.frontier == 9


async def test_a_slow_key_holds_up_nobody_but_itself():
    handler = Gates("slow")
    async with World(handler, lanes=2) as world:
        await world.give("slow", "slow", *"abcdefgh", "slow")
        assert handler.begun == [0, *range(2, 10)]
        assert world.frontier == 0
        assert world.queue.commit_point(world.intake.partition).runs == ((2, 9),)
        handler.open("slow")
        await until(lambda: world.is_done)
        assert [o for o in handler.begun if o in (0, 1, 10)] == [0, 1, 10]
        assert world.frontier == 11


async def test_records_without_a_key_wait_for_nobody():
    gate = asyncio.Event()
    begun = []

    async def handler(record: Record) -> None:
        begun.append(record.offset)
        await gate.wait()

    async with World(handler, lanes=3) as world:
        await world.give(None, None, None)
        assert begun == [0, 1, 2]
        gate.set()


async def test_no_more_are_open_than_there_is_room_for():
    handler = Gates("slow")
    async with World(handler, lanes=2, room=10) as world:
        await world.give(*["slow"] * 50, "quick")
        assert len(world.intake.ledger) == 10
        assert world.intake.has_blocks
        assert handler.begun == [0]
        handler.open("slow")
        await until(lambda: world.is_done)
        assert sorted(handler.ended) == list(range(51))


async def test_a_failed_record_is_settled_when_it_is_taken_over_and_not_before():
    async def handler(record: Record) -> None:
        if record.offset == 1:
            raise ValueError("no")

    async with World(handler) as world:
        world.failures.gate.clear()
        await world.give("a", "b", "b", "c")
        assert world.failures.failed == [(1, "ValueError")]
        assert world.frontier == 1
        assert 2 in world.intake.ledger, "the next of the key waits for it"
        world.failures.gate.set()
        await until(lambda: world.is_done)


async def test_a_coroutine_that_takes_too_long_is_cancelled_and_fails():
    handler = Gates("slow")
    async with World(handler, rules=WorkRules(max_processing_time=2.0)) as world:
        await world.give("slow", "quick")
        await world.sweep_after(1.9)
        assert world.failures.failed == []
        world.clock.advance(0.2)
        world.pool._sweep()
        await until(lambda: world.is_done)
        assert world.failures.failed == [(0, "ProcessingTimeout")]
        await world.give("quick", "quick")  # the lane goes on
        assert world.is_done


async def test_a_coroutine_that_succeeds_although_it_was_cancelled_has_succeeded():
    done = []

    async def handler(record: Record) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            done.append(record.offset)

    async with World(handler, rules=WorkRules(max_processing_time=2.0)) as world:
        await world.give("slow")
        await world.sweep_after(2.0)
        await until(lambda: world.is_done)
        assert (done, world.failures.failed) == ([0], [])


async def test_a_plain_function_that_takes_too_long_blocks_its_key_and_nobody_else():
    gate, ended = threading.Event(), []

    def handler(record: Record) -> None:
        if record.key == b"slow":
            gate.wait(10)
        ended.append(record.offset)

    async with World(handler, lanes=1, rules=WorkRules(max_processing_time=2.0)) as world:
        await world.give("slow", "slow", "quick")
        assert ended == []  # the only lane is at it
        await world.sweep_after(2.0)
        await until(lambda: 2 in ended)
        assert world.frontier == 0
        assert world.failures.failed == []
        gate.set()
        await until(lambda: world.is_done)
        assert ended == [2, 0, 1]
        assert world.failures.failed == [(0, "ProcessingTimeout")]
        await world.give("a", "b")
        await until(lambda: world.is_done)
        assert len(world.pool._lanes) == 1, "the substitute lane has ended"


@pytest.mark.parametrize("is_overdue", [False, True])
async def test_a_plain_function_that_still_runs_at_the_end_is_not_settled(is_overdue):
    """A record that was overdue was copied or skipped, and committed, while it ran."""
    gate, begun = threading.Event(), threading.Event()

    def handler(record: Record) -> None:
        begun.set()
        gate.wait(10)

    async with World(handler, lanes=1, rules=WorkRules(max_processing_time=2.0)) as world:
        await world.give("a")
        await until(begun.is_set)
        if is_overdue:
            await world.sweep_after(2.0)
        given_up = await world.processor.drain(world.clock.monotonic())
        assert [record.offset for record in given_up] == [0]
        assert world.failures.failed == []
        assert world.frontier == 0
        gate.set()


async def test_threads_that_took_the_place_of_hung_ones_end_with_them():
    gate, lock, at_once, most = threading.Event(), threading.Lock(), set(), []
    others = set(threading.enumerate())

    def handler(record: Record) -> None:
        with lock:
            at_once.add(record.offset)
            most.append(len(at_once))
        if record.offset < 3:
            gate.wait(10)
        with lock:
            at_once.discard(record.offset)

    rules = WorkRules(max_processing_time=2.0, has_more_lanes_than_threads=True)
    async with World(handler, lanes=3, rules=rules) as world:
        await world.give("a", "b", "c")
        await until(lambda: len(at_once) == 3)
        await world.sweep_after(2.0)
        await world.give(*"defghi")
        await until(lambda: len(most) == 9)
        assert len(world.threads) == 6
        gate.set()
        await until(lambda: world.is_done)
        await world.give(*"jkl")
        await until(lambda: world.is_done)
        assert len(world.threads) == 3
        await until(lambda: len(set(threading.enumerate()) - others) == 3)


async def test_what_a_function_sets_in_its_context_is_not_for_the_next():
    variable: ContextVar[int] = ContextVar("of_the_function", default=-1)
    found = []

    async def handler(record: Record) -> None:
        found.append(variable.get())
        variable.set(record.offset)

    async with World(handler, lanes=1) as world:
        await world.give(*"abcd")
        assert found == [-1] * 4


async def test_plain_functions_have_a_context_of_their_own_each():
    variable: ContextVar[int] = ContextVar("of_the_function", default=-1)
    found = []

    def handler(record: Record) -> None:
        found.append(variable.get())
        variable.set(record.offset)

    async with World(handler, lanes=1) as world:
        await world.give(*"abcd")
        await until(lambda: world.is_done)
        assert found == [-1] * 4


async def test_lanes_come_and_go():
    handler = Gates(*"abcdef")
    async with World(handler, lanes=2) as world:
        await world.give(*"abcdef")
        assert len(handler.begun) == 2
        world.pool.resize(5)
        await until(lambda: len(handler.begun) == 5)
        world.pool.resize(1)
        for key in "abcdef":
            handler.open(key)
        await until(lambda: world.is_done)
        await until(lambda: len(world.pool._lanes) == 1)
        await world.give(*"gh")
        assert world.is_done


async def test_draining_ends_what_is_in_work_and_begins_nothing():
    handler = Gates("a")
    async with World(handler, lanes=1) as world:
        await world.give(*"abc")
        draining = asyncio.ensure_future(world.processor.drain(world.clock.monotonic() + 60))
        await until(lambda: world.pool._is_draining)
        handler.open("a")
        assert await draining == []
        assert handler.ended == [0]
        assert world.frontier == 1


async def test_a_call_that_does_not_end_in_time_is_abandoned_unsettled():
    handler = Gates("a")
    async with World(handler, lanes=2) as world:
        await world.give("a", "b")
        given_up = await world.processor.drain(world.clock.monotonic())
        assert [record.offset for record in given_up] == [0]
        assert world.frontier == 0
        assert world.queue.commit_point(world.intake.partition).runs == ((1, 1),)
        assert world.failures.failed == []


async def test_a_routed_class_has_lanes_of_its_own():
    handler = Gates("slow1", "slow2", "slow3")

    def route(record: Record) -> str:
        return "slow" if (record.key or b"").startswith(b"slow") else "no such class"

    async with World(handler, lanes=1, classes={"slow": 2}, route=route) as world:
        await world.give("slow1", "slow2", "slow3", *"abcdef")
        assert [o for o in sorted(handler.begun) if o < 3] == [0, 1]
        assert set(handler.ended) == set(range(3, 9))
        for key in ("slow1", "slow2", "slow3"):
            handler.open(key)
        await until(lambda: world.is_done)


async def test_what_is_not_due_waits_without_assignment_others():
    due = {0: 5.0}
    handled = []

    async def handler(record: Record) -> None:
        handled.append(record.offset)

    async with World(handler, due_at=lambda record: due.get(record.offset, 0.0)) as world:
        await world.give("late", "late", "quick")
        assert handled == [2]
        world.clock.advance(5.0)
        world.pool.supply.wake_deferred()
        await until(lambda: world.is_done)
        assert handled == [2, 0, 1]


async def test_a_real_ctrl_c_is_not_a_failed_record():
    """asyncio passes these through its loop, so the test inspects the lane."""
    from lane_world import record_of
    from multilane.lanes.lane import Lane
    from multilane.outcome.raised import Interrupted

    async def handler(record: Record) -> None:
        raise Interrupted

    async with World(handler, lanes=1) as world:
        with pytest.raises(Interrupted):
            await world.work.single(Lane(), record_of("a", 0))
        assert world.failures.failed == []


async def test_a_cancellation_of_the_functions_own_is_a_failure_like_others():
    async def handler(record: Record) -> None:
        if record.key == b"bad":
            raise asyncio.CancelledError

    async with World(handler, lanes=1) as world:
        await world.give("bad", "good", "bad")
        await until(lambda: world.is_done)
        assert world.failures.failed == [(0, "CancelledError"), (2, "CancelledError")]
        assert world.errors == []


async def test_a_plain_function_around_a_coroutine_is_awaited():
    handled = []

    async def inner(record: Record) -> None:
        handled.append(record.offset)

    def wrapper(record: Record) -> object:
        return inner(record)

    async with World(wrapper) as world:
        await world.give("a", "b")
        await until(lambda: world.is_done)
        assert sorted(handled) == [0, 1]


async def test_a_plain_function_may_raise_what_no_future_takes():
    def handler(record: Record) -> None:
        raise StopIteration

    async with World(handler, lanes=1) as world:
        await world.give("a", "b")
        await until(lambda: world.is_done)
        assert world.failures.failed == [(0, "RuntimeError"), (1, "RuntimeError")]


async def test_other_keys_get_the_room_that_a_hot_key_gives_free():
    """The lane that handles the hot key never runs out of work itself."""
    gates = {offset: asyncio.Event() for offset in range(200)}
    begun = []

    async def handler(record: Record) -> None:
        begun.append(record.key)
        if record.key == b"hot":
            await gates[record.offset].wait()

    async with World(handler, lanes=4, room=16) as world:
        await world.give(*["hot"] * 40, *[f"k{i}" for i in range(20)])
        assert set(begun) == {b"hot"}
        for offset in range(30):
            gates[offset].set()
        await until(lambda: len(begun) > 50)
        assert b"k19" in begun
        for gate in gates.values():
            gate.set()
        await until(lambda: world.is_done)


async def test_what_becomes_due_while_lanes_are_busy_is_not_forgotten():
    gate, handled = asyncio.Event(), []

    async def handler(record: Record) -> None:
        if record.key == b"busy":
            await gate.wait()
        handled.append(record.offset)

    async with World(handler, lanes=2, due_at=lambda record: 0.01 if record.key == b"late" else 0.0) as world:
        await world.give("busy", "late")
        world.clock.advance(1.0)
        await until(lambda: handled == [1])
        gate.set()


async def test_a_route_function_that_fails_costs_no_record():
    handled = []

    async def handler(record: Record) -> None:
        handled.append(record.offset)

    async with World(handler, classes={"slow": 1}, route=lambda record: {}["no"]) as world:
        await world.give("a", "b")
        await until(lambda: world.is_done)
        assert sorted(handled) == [0, 1]


async def test_the_lane_of_a_serial_partition_lets_others_have_their_turn():
    """Its function never waits, and more records come than it takes at a time."""
    handled, most = [], 0

    async def handler(record: Record) -> None:
        handled.append(record.offset)

    async with World(handler, lanes=1, room=300, order_of=one_chain) as world:
        world.processor.accept(block_of(["k"] * 5_000))
        world.processor.feed()
        while len(handled) < 5_000:
            before = len(handled)
            await turns(1)
            most = max(most, len(handled) - before)
        assert handled == list(range(5_000))
        assert most <= 300
