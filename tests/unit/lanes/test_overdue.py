"""Calls that do not end: substitute lanes, and when the partition stands still."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading

import pytest

from lane_world import World, turns, until
from multilane.lanes.interpreter import run_to_end
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


@pytest.mark.parametrize("kind", ["coroutine", "plain"])
async def test_a_partition_whose_calls_all_hang_says_so_and_goes_on_when_one_ends(kind, caplog):
    handler, let_go = Stubborn(), threading.Event()

    def plain(record: Record) -> None:
        if record.key.startswith(b"hang"):
            let_go.wait(60)

    caplog.set_level(logging.WARNING)
    rules = WorkRules(1.0, runs_ahead=True)
    async with World(handler if kind == "coroutine" else plain, lanes=2, rules=rules) as world:
        await world.give(*[f"hang{i}" for i in range(5)], "a")
        for _ in range(8):
            await until(lambda: all(lane.is_calling for lane in world.pool._lanes) or kind == "plain")
            await world.sweep_after(1.5)
        lines = [r.message for r in caplog.records if "blocked by 4 hung calls" in r.message]
        assert lines, "nothing was logged"
        assert len(lines) < 3, "once in thirty seconds is enough"
        assert world.frontier == 0
        handler.let_go.set()
        let_go.set()
        await until(lambda: world.is_done)
        await world.sweep_after(0.0)
        assert any("resumes: a hung call" in r.message for r in caplog.records)


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
