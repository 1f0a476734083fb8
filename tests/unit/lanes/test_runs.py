"""A partition that is one chain: a lane takes what waits behind a record with it, and all rules of single records
hold."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from lane_world import World, turns
from multilane.lanes.ordering import by_partition

CURRENT: ContextVar[str] = ContextVar("current", default="none")


def world_of(handler, **more):
    return World(handler, lanes=2, order_of=by_partition(), **more)


async def test_records_are_handled_in_order_and_settled_one_by_one():
    got, frontiers = [], []

    async def handle(record):
        frontiers.append(world.frontier)
        got.append(record.offset)

    async with world_of(handle) as world:
        await world.give(*"abcabc")
        assert got == frontiers == list(range(6))
        assert world.is_done
        assert world.pool.in_flight == ()


async def test_a_call_that_waits_holds_those_behind_it_and_nothing_before_it():
    gate = asyncio.Event()
    got = []

    async def handle(record):
        got.append(record.offset)
        if record.offset == 2:
            await gate.wait()

    async with world_of(handle) as world:
        await world.give(*"abcde")
        assert got == [0, 1, 2]
        assert world.frontier == 2
        assert [record.offset for record in world.pool.in_flight] == [2]
        await world.give(*"fg")
        assert got == [0, 1, 2]
        gate.set()
        await turns()
        assert got == list(range(7))
        assert world.is_done


async def test_a_failed_record_is_taken_over_before_the_next_is_begun():
    got = []

    async def handle(record):
        got.append(record.offset)
        if record.offset == 1:
            raise ValueError

    async with world_of(handle) as world:
        world.failures.gate.clear()
        await world.give(*"abc")
        assert got == [0, 1]
        assert world.failures.failed == [(1, "ValueError")]
        world.failures.gate.set()
        await turns()
        assert got == [0, 1, 2]
        assert world.is_done


async def test_a_failed_record_that_is_retried_in_place_comes_before_those_behind_it():
    got = []

    async def handle(record):
        got.append((record.offset, record.value))
        if record.value == b"1":
            raise ValueError

    async def again(record, error, parking):
        return record._replace(value=b"again")

    async with world_of(handle) as world:
        world.failures.take_over = again
        await world.give(*"abc")
        assert got == [(0, b"0"), (1, b"1"), (1, b"again"), (2, b"2")]
        assert world.is_done


async def test_no_call_sees_the_context_of_the_one_before():
    seen = []

    async def handle(record):
        seen.append(CURRENT.get())
        CURRENT.set(f"of {record.offset}")

    async with world_of(handle) as world:
        await world.give(*"abcd")
        assert seen == ["none"] * 4


async def test_a_drain_leaves_what_was_not_begun_unsettled():
    gate = asyncio.Event()
    got = []

    async def handle(record):
        got.append(record.offset)
        await gate.wait()

    async with world_of(handle) as world:
        await world.give(*"abc")
        draining = asyncio.ensure_future(world.processor.drain(world.clock.monotonic() + 10))
        await turns()
        gate.set()
        assert await draining == []
        assert got == [0]
        assert world.intake.ledger.unsettled == (1, 2)
