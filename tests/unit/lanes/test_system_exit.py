"""SystemExit, KeyboardInterrupt and GeneratorExit of a user's function are failures of its record, on any runner."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa
import pytest

from lane_world import TakenOver, World, turns, until
from multilane.app.signals import signals_stop
from multilane.lanes.interpreter import loop_on_thread, run_to_end
from multilane.lanes.partition_queue import MAIN
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.context import Context
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.window import Window
from multilane.outcome.raised import Interrupted, as_failure, is_ctrl_c
from multilane.wire.records.record import Record

EXITS = [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]
EXPECTED = {SystemExit: "RuntimeError", KeyboardInterrupt: "RuntimeError", GeneratorExit: "RuntimeError"}


@pytest.fixture(autouse=True)
def _signals_are_ours():
    """As in a running application, where a KeyboardInterrupt is not a Ctrl-C."""
    with signals_stop(lambda: None):
        yield


class Raising:
    """Functions of every kind, which raise for the key `bad`."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def coroutine(self, record: Record) -> None:
        self.plain(record)

    def plain(self, record: Record) -> None:
        if record.key == b"bad":
            raise self.error

    async def with_context(self, record: Record, context: Context) -> None:
        self.plain(record)

    async def batch(self, records: list[Record]) -> None:
        self.plain_batch(records)

    def plain_batch(self, records: list[Record]) -> None:
        for record in records:
            self.plain(record)

    async def columns(self, rows: pa.RecordBatch) -> None:
        if b"bad" in rows.column("key").to_pylist():
            raise self.error


KINDS = ["coroutine", "plain", "with_context", "batch", "plain_batch", "columns"]


@pytest.mark.parametrize("error", EXITS, ids=repr)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "rules", [WorkRules(60.0), WorkRules(60.0, has_more_lanes_than_threads=True)], ids=["", "ahead"]
)
async def test_a_function_that_raises_an_exit_fails_its_record(error, kind, rules):
    """In a coroutine, sys.exit(0) silently ended the application with code 0."""
    many = 2 if kind in {"batch", "plain_batch", "columns"} else 1
    window = Window(many, 0.01) if many > 1 else Window()
    async with World(getattr(Raising(error), kind), lanes=1, window=window, rules=rules) as world:
        await world.give("a", "b", "bad", "bad", "c", "d")
        await until(lambda: world.is_done)
        assert [offset for offset, _ in world.failures.failed] == [2, 3]
        expected = "RuntimeError" if "plain" in kind else EXPECTED.get(type(error), "CancelledError")
        assert {name for _, name in world.failures.failed} == {expected}
        assert world.errors == []


class Leaving:
    """An interceptor, an error interceptor and a tracer, each of which raises SystemExit or the like."""

    def on_consume(self, context, record):
        if record.key == b"bad":
            sys.exit(0)

    def on_error(self, context, record, error):
        sys.exit(1)

    def start(self, context, name, record):
        return lambda error: sys.exit(2)


@pytest.mark.parametrize("window", [Window(), Window(2, 0.01)], ids=["single", "batch"])
async def test_what_surrounds_a_function_may_leave_too(window):
    one = Leaving()
    around = InterceptorChain("g", interceptors=[one], error_interceptors=[one], tracers=[one])

    async def single(record: Record) -> None: ...
    async def batch(records: list[Record]) -> None: ...

    handler = single if window.is_single else batch
    async with World(handler, window=window, interceptors=around, rules=WorkRules(60.0)) as world:
        await world.give("a", "bad", "b", "c")
        await until(lambda: world.is_done)
        around.on_failure(Record("t", 3, 0, 0, 0, None, None), ValueError())
        assert world.failures.failed == [(1, "RuntimeError")]
        assert world.errors == []


async def test_a_select_or_route_function_may_leave_too():
    def select(records: Sequence[Record]):
        sys.exit(0)

    async def handler(records: list[Record]) -> None: ...

    async with World(handler, window=Window(2, 0.01, select), rules=WorkRules(60.0)) as world:
        await world.give("a", "b")
        await until(lambda: world.is_done)
        assert world.failures.failed == [(0, "RuntimeError"), (1, "RuntimeError")]

    async def single(record: Record) -> None: ...

    async with World(single, classes={"slow": 1}, route=select) as world:
        await world.give("a", "b")
        await until(lambda: world.is_done)
        assert (world.failures.failed, world.errors) == ([], [])
        assert MAIN in world.processor._pools


def test_a_task_of_a_function_that_leaves_does_not_end_the_loop():
    """asyncio passes the SystemExit of any task through the loop."""
    said = []

    async def main():
        async def leave():
            sys.exit(0)

        inner = asyncio.create_task(leave())
        (ended,) = await asyncio.gather(inner, return_exceptions=True)
        said.append(type(ended))
        return 7

    assert run_to_end(main()) == 7
    assert said == [SystemExit]


def test_the_main_task_may_leave():
    async def main():
        sys.exit(3)

    with pytest.raises(SystemExit):
        run_to_end(main())


def test_a_loop_on_a_thread_goes_on_too():
    async def leave():
        sys.exit(0)

    async def stay():
        return 5

    with loop_on_thread("test") as loop:
        with pytest.raises(SystemExit):
            asyncio.run_coroutine_threadsafe(leave(), loop).result(30)
        assert asyncio.run_coroutine_threadsafe(stay(), loop).result(30) == 5


def test_a_second_ctrl_c_ends_at_once():
    async def main():
        async def handler():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.get_running_loop().create_future()

        try:
            await handler()
        except BaseException as error:
            as_failure(error)
            raise

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with signals_stop(lambda: None), pytest.raises(Interrupted):
            run_to_end(main())
    finally:
        signal.signal(signal.SIGINT, before)


def test_pythons_own_handler_counts_as_a_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert is_ctrl_c(KeyboardInterrupt())
        assert not is_ctrl_c(SystemExit())
    finally:
        signal.signal(signal.SIGINT, before)
    assert not is_ctrl_c(KeyboardInterrupt())


# --- functions that cancel the task of their lane --------------------------------------------------------------------


class Cancelling:
    """Functions that cancel the task they run in for the key `bad`, and then end in the given way."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.handled: list[int] = []

    async def _end(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if self.way == "raises":
            raise ValueError
        if self.way == "swallows":
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        if self.way == "awaits":
            await asyncio.Event().wait()

    async def single(self, record: Record) -> None:
        if record.key == b"bad":
            await self._end()
        await turns(1)
        self.handled.append(record.offset)

    async def batch(self, records: list[Record]) -> None:
        if any(record.key == b"bad" for record in records):
            await self._end()
        await turns(1)
        self.handled += [record.offset for record in records]


class Waiting(TakenOver):
    """Copies that are acknowledged a moment later."""

    async def take_over(self, record, error, parking):
        await turns(1)
        return await super().take_over(record, error, parking)


@pytest.mark.parametrize(
    ("way", "expected"), [("awaits", "CancelledError"), ("raises", "ValueError"), ("goes on", "CancelledError")]
)
@pytest.mark.parametrize("many", [1, 2])
@pytest.mark.parametrize("lanes", [1, 3])
async def test_a_function_that_cancels_its_own_task_has_failed_and_nothing_else_ends(way, expected, many, lanes):
    """The lane ended with it, and the application with the lane."""
    cancelling = Cancelling(way)
    handler = cancelling.single if many == 1 else cancelling.batch
    window = Window(many, 0.01) if many > 1 else Window()
    async with World(handler, lanes=lanes, window=window, rules=WorkRules(60.0)) as world:
        world.work.settling.failures = world.failures = Waiting()
        await world.give("a", "b", "bad", "bad", "c", "d", "e", "f")
        await until(lambda: world.is_done)
        assert world.failures.failed == [(2, expected), (3, expected)]
        assert sorted(cancelling.handled) == [0, 1, 4, 5, 6, 7]
        assert world.errors == []


async def test_a_cancellation_that_a_function_swallows_does_not_reach_the_next_record():
    """The task's counter of cancellations stayed, so the next CancelledError that a function raised ended its lane."""
    cancelling = Cancelling("swallows")

    async def handler(record: Record) -> None:
        if record.key == b"last":
            asyncio.current_task().cancel()
            return
        await cancelling.single(record)
        if record.key == b"gone":
            gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            gone.cancel()
            await gone

    async with World(handler, lanes=1, rules=WorkRules(60.0)) as world:
        await world.give("bad", "a", "gone", "b", "last", "c")
        await until(lambda: world.is_done)
        assert world.failures.failed == [(2, "CancelledError")]
        assert world.errors == []


async def test_a_lane_that_another_task_cancels_ends_the_group():
    """That task may be about to end everything: the record has not failed."""
    begun = asyncio.Event()

    async def handler(record: Record) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with World(handler, lanes=1, rules=WorkRules(60.0)) as world:
        await world.give("a")
        await begun.wait()
        [lane] = world.pool._lanes
        lane.task.cancel()
        await until(lambda: world.errors)
        assert world.failures.failed == []
