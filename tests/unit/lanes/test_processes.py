"""Worker processes: which calls fail when a worker dies or hangs, and what happens when the parent ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from lane_world import World, record_of, turns, until
from multilane.clock import SystemClock
from multilane.commit.journal import OUTCOMES, RecordJournal, RecordOutcome
from multilane.lanes.failing import Failing, FailureRoutes
from multilane.lanes.processes import Processes, WorkerGate
from multilane.lanes.work_rules import WorkRules
from multilane.lanes.worker import WorkerDied
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.window import Window
from multilane.outcome.backoff import RetryDelay
from multilane.outcome.next_step import RetryPolicy
from process_functions import (
    DiesFirst,
    crash_on,
    crash_on_batch,
    crash_on_columns,
    give_a_lock,
    hang_on,
    leave,
    note_many_then_die_once,
    note_one_then_die_once,
    own_pid,
    raise_picky,
)

OWNER = """
import asyncio, os
from multilane.lanes.processes import Processes

async def main():
    pool = Processes(2)
    await pool.start(os.getpid)
    print(*pool.pids, flush=True)
    await asyncio.get_running_loop().create_future()

if __name__ == "__main__":
    asyncio.run(main())
"""


@asynccontextmanager
async def workers(many, *functions):
    pool = Processes(many)
    await pool.start(*functions)
    try:
        yield pool
    finally:
        await pool.close()


def test_workers_end_with_the_process_that_was_killed(tmp_path):
    """Otherwise they would wait for calls for ever."""
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as owner:
        found = owner.stdout.readline().split()
        owner.kill()
    assert len(found) == 2
    _ends(*map(int, found))


async def test_only_the_call_whose_worker_died_fails(tmp_path):
    """With a shared pool the others failed with it, although nothing was wrong with them."""

    async def call(number):
        record = record_of("crash" if number == 2 else "fine", number)
        async with pool.gate:
            await pool(partial(crash_on, str(tmp_path), record))

    async with workers(3, crash_on) as pool:
        ended = await asyncio.gather(*map(call, range(9)), return_exceptions=True)
    assert [type(end) for end in ended] == [WorkerDied if i == 2 else type(None) for i in range(9)]
    assert len(list(tmp_path.glob("done-*"))) == 8, "none of the others ran twice"
    assert "was killed by SIGKILL while running" in str(ended[2])


async def test_lanes_go_on_beside_a_record_that_kills_its_worker(tmp_path):
    async with workers(2, crash_on) as pool:
        handler = partial(crash_on, str(tmp_path))
        async with World(handler, lanes=4, runner=pool, rules=WorkRules(60.0)) as world:
            await world.give("a", "crash", "b", "c", "d", "e")
            await until(lambda: world.is_done)
            assert world.failures.failed == [(1, "WorkerDied")]
            assert world.errors == []


@pytest.mark.parametrize(
    ("function", "as_rows"), [(crash_on_batch, False), (crash_on_batch, True), (crash_on_columns, True)]
)
async def test_in_a_batch_only_the_record_that_kills_its_worker_fails(function, as_rows):
    """The records of the same call failed with it."""
    async with workers(2, function) as pool:
        more = {"window": Window(5, 0.01), "rules": WorkRules(60.0), "as_rows": as_rows}
        async with World(function, lanes=1, runner=pool, **more) as world:
            await world.give("a", "b", "crash", "c", "a")
            await until(lambda: world.is_done)
            assert world.failures.failed == [(2, "WorkerDied")]
            assert sorted(world.failures.interrupted) == [0, 1, 2, 3, 4], "the call may have had an effect"
            assert world.failures.successes == 4
            assert (world.frontier, world.errors) == (5, [])


async def test_an_idle_worker_that_is_killed_costs_no_call():
    """The OOM killer, for example, may kill any worker."""
    async with workers(2, own_pid) as pool:
        killed, other = pool.pids
        os.kill(killed, signal.SIGKILL)

        async def call():
            async with pool.gate:
                return await pool(partial(own_pid, 0.02))

        ran = set(await asyncio.gather(*(call() for _ in range(20))))
        assert killed not in ran
        await until(lambda: len(pool.pids) == 2)
        assert other in pool.pids


async def test_a_call_that_hangs_is_killed_and_its_worker_replaced():
    async with workers(1, hang_on) as pool, World(hang_on, lanes=2, runner=pool) as world:
        [hung] = pool.pids
        await world.give("hang", "a", "b")
        await until(lambda: any(lane.is_calling for lane in world.pool._lanes))
        await world.sweep_after(1.5)
        await until(lambda: world.is_done)
        assert world.failures.failed == [(0, "ProcessingTimeout")]
        _ends(hung)


async def test_the_end_does_not_wait_for_a_call_that_hangs():
    pool = Processes(2)
    await pool.start(hang_on)
    pids = pool.pids
    calling = asyncio.create_task(pool(partial(hang_on, record_of("hang", 0))))
    await until(lambda: any(worker.is_busy for worker in pool._workers))
    async with asyncio.timeout(20):
        await pool.close()
        with pytest.raises(WorkerDied):
            await calling
    _ends(*pids)


async def test_signals_for_the_whole_group_do_not_end_workers():
    """A service manager sends SIGTERM to all processes; calls in flight still have time to end."""
    async with workers(1, own_pid) as pool:
        [pid] = pool.pids
        calling = asyncio.create_task(pool(partial(own_pid, 0.3)))
        await until(lambda: any(worker.is_busy for worker in pool._workers))
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(pid, number)
        assert await calling == pid
        assert await pool(own_pid) == pid


async def test_errors_come_back_whatever_they_are():
    async with workers(1, own_pid) as pool:
        [pid] = pool.pids
        with pytest.raises(RuntimeError, match="Picky: one and another") as raised:
            await pool(raise_picky)
        assert "in raise_picky" in str(raised.value.__cause__)
        with pytest.raises(TypeError, match="lock"):
            await pool(give_a_lock)
        with pytest.raises(RuntimeError, match=r"the function raised SystemExit\(0\)"):
            await pool(partial(leave, record_of("leave", 0)))
        assert await pool(own_pid) == pid, "none of them costs a worker"


async def test_a_worker_that_cannot_start_says_why():
    with pytest.raises(WorkerDied, match="before it was ready"):
        await Processes(1).start(_Unimportable())


async def test_a_start_that_failed_can_be_repeated(tmp_path):
    """One of two workers dies: the other one may stay, and there are two in the end."""
    pool = Processes(2)
    try:
        with pytest.raises(WorkerDied, match="before it was ready"):
            await pool.start(DiesFirst(str(tmp_path)))
        assert len(pool.pids) <= 1
        await pool.start(DiesFirst(str(tmp_path)))
        assert len(set(pool.pids)) == 2
    finally:
        await pool.close()


async def test_the_gate_is_fair_and_survives_cancelled_waits():
    room, entered = 1, []
    gate = WorkerGate(lambda: room)

    async def enter(name, leaving):
        async with gate:
            entered.append(name)
            await leaving.wait()

    leaving = asyncio.Event()
    tasks = [asyncio.create_task(enter(name, leaving)) for name in "abcd"]
    await turns()
    tasks[1].cancel()
    leaving.set()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end).__name__ for end in ended] == ["NoneType", "CancelledError", "NoneType", "NoneType"]
    assert entered == ["a", "c", "d"]
    async with asyncio.timeout(5), gate:
        assert gate._inside == 1


class _Unimportable:
    def __reduce__(self):
        return (__import__, ("there_is_no_such_module",))


def _ends(*pids):
    clock = SystemClock()
    deadline = clock.monotonic() + 20.0
    while any(map(_is_alive, pids)):
        assert clock.monotonic() < deadline, "they live on"
        threading.Event().wait(0.05)


def _is_alive(pid):
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("function", "window"), [(note_one_then_die_once, None), (note_many_then_die_once, Window(size=4))]
)
async def test_whatever_ran_in_a_worker_that_was_killed_is_noted_as_interrupted(tmp_path, function, window):
    """The audit said "each once" of records whose worker was killed after they had had their effect."""
    ledger = tmp_path / "ledger"
    async with workers(1, function) as pool:
        rules = WorkRules(60.0, retries_in_place=True)
        async with World(partial(function, str(tmp_path)), lanes=1, runner=pool, rules=rules, window=window) as world:
            journal = RecordJournal(lambda: 0)
            routes = FailureRoutes(RetryPolicy("t"), None, keeping=RetryDelay("fixed", delay=0.0, maximum=0.0))
            world.work.settling.failures = Failing(routes, InterceptorChain("g"), world.clock, notes=journal)

            def goes_on() -> bool:
                world.clock.advance(1.0)
                world.pool.supply.wake_deferred()
                return world.is_done

            await world.give("a", "a", "a", "a")
            await until(goes_on)
    found = journal.take()
    noted = {outcome: set(found.offset[found.outcome == code].tolist()) for code, outcome in enumerate(OUTCOMES)}
    times = Counter(map(int, ledger.read_text().split()))
    assert noted[RecordOutcome.DONE] == set(range(4))
    assert {offset for offset, many in times.items() if many > 1} == noted[RecordOutcome.INTERRUPTED] != set()
