"""Overrides of a running consumer: pause, resume, and the number of lanes."""

from __future__ import annotations

import asyncio

import pytest

from lane_world import World, turns, until
from multilane.errors import ConfigError
from multilane.lanes.consumer_overrides import MOST_LANES, ConsumerOverrides, overrides_from
from multilane.lanes.partition_queue import MAIN
from multilane.listeners.window import Window
from multilane.wire.records.record import Record


class Slowly:
    """Each call waits for one turn of the gate."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.gate = asyncio.Semaphore(0)

    async def __call__(self, record: Record) -> None:
        self.begun.append(record.offset)
        await self.gate.acquire()


def steer(world: World, *, is_paused: bool = False, lanes: int = 4) -> None:
    world.processor.apply_overrides(is_paused=is_paused, lanes={MAIN: lanes}, waiting_per_lane=100)


@pytest.mark.parametrize("as_rows", [False, True])
async def test_nothing_is_begun_while_it_is_paused(as_rows):
    handled: list[int] = []

    async def one(record: Record) -> None:
        handled.append(record.offset)

    async def some(records: list[Record]) -> None:
        handled.extend(record.offset for record in records)

    window = Window(size=2, latency=0.001) if as_rows else None
    async with World(some if as_rows else one, window=window, as_rows=as_rows) as world:
        await world.give(*"ab")
        await until(lambda: handled == [0, 1])
        steer(world, is_paused=True)
        await world.give(*"cdef")
        assert handled == [0, 1]
        steer(world)
        await until(lambda: sorted(handled) == [0, 1, 2, 3, 4, 5])
        assert world.is_done


async def test_what_is_in_work_ends_while_it_is_paused():
    handler = Slowly()
    async with World(handler, lanes=2) as world:
        await world.give(*"ab")
        steer(world, is_paused=True, lanes=2)
        await world.give(*"cd")
        handler.gate.release()
        handler.gate.release()
        await turns()
        assert handler.begun == [0, 1]
        assert world.intake.ledger.unsettled == ()
        handler.gate.release()
        handler.gate.release()
        steer(world, lanes=2)
        await until(lambda: world.is_done)


async def test_more_lanes_take_more_at_once_and_fewer_less():
    handler = Slowly()
    async with World(handler, lanes=1, room=2) as world:
        await world.give(*"abcdefgh")
        assert handler.begun == [0]
        steer(world, lanes=5)
        await until(lambda: len(handler.begun) == 5)
        steer(world, lanes=2)
        for _ in range(5):
            handler.gate.release()
        await turns()
        assert len(handler.begun) == 7
        for _ in range(3):
            handler.gate.release()
        await until(lambda: world.is_done)


async def test_fewer_lanes_with_little_room_go_on():
    handled = []

    async def handler(record: Record) -> None:
        handled.append(record.offset)

    async with World(handler, lanes=100, room=400) as world:
        world.processor.apply_overrides(is_paused=False, lanes={MAIN: 1}, waiting_per_lane=4)
        await world.give(*map(str, range(50)))
        await until(lambda: world.is_done)
    assert handled == list(range(50))


def test_it_travels_as_json():
    for steering in (ConsumerOverrides(), ConsumerOverrides(is_paused=True), ConsumerOverrides(lanes=5)):
        assert overrides_from(steering.to_json()) == steering


@pytest.mark.parametrize("lanes", [0, -1, MOST_LANES + 1])
def test_lanes_there_cannot_be_are_refused(lanes):
    with pytest.raises(ConfigError, match="lanes: from 1 to"):
        ConsumerOverrides(lanes=lanes)
