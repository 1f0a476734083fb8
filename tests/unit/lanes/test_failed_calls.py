"""A failed call leaves no garbage once its record is taken over, even before a garbage collection."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from lane_world import TakenOver, World, turns, until
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.acknowledgement import Acknowledgement
from multilane.listeners.context import Context
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.window import Selection, Window
from multilane.stacks import stack_of
from multilane.wire.records.record import Record

MANUAL = WorkRules(is_manual=True)
failures: list[weakref.ref[Failed]] = []


class Failed(Exception):
    pass


def failed() -> Failed:
    error = Failed()
    failures.append(weakref.ref(error))
    return error


async def bare(record: Record) -> None:
    raise failed()


async def with_context(record: Record, context: Context) -> None:
    raise failed()


async def by_hand(record: Record, acknowledgement: Acknowledgement) -> None:
    raise failed()


async def settled_by_hand(record: Record, acknowledgement: Acknowledgement, context: Context) -> None:
    acknowledgement.acknowledge()
    await turns(2)  # until that is decided
    raise failed()


def on_a_thread(record: Record) -> None:
    raise failed()


async def batch(records: list[Record]) -> None:
    raise failed()


async def returned(records: list[Record]) -> dict[Record, Exception]:
    return {record: failed() for record in records}


async def batch_with_context(records: list[Record], context: Context) -> None:
    raise failed()


def select(records: list[Record]) -> Selection:
    raise failed()


class Refusing:
    def on_consume(self, context: Context, record: Record) -> None:
        raise failed()


class Deaf:
    def on_error(self, context: Context, record: Record, error: BaseException) -> None: ...


WINDOW = Window(2, 60.0)


@pytest.mark.parametrize(
    ("handler", "settings"),
    [
        (bare, {}),
        (on_a_thread, {}),
        (with_context, {}),
        (by_hand, {"rules": MANUAL}),
        (settled_by_hand, {"rules": MANUAL, "chain": {"error_interceptors": [Deaf()]}}),
        (bare, {"chain": {"interceptors": [Refusing()]}}),
        (batch, {"window": WINDOW}),
        (returned, {"window": WINDOW}),
        (batch_with_context, {"window": WINDOW}),
        (batch, {"window": WINDOW, "as_rows": True}),
        (batch, {"window": WINDOW, "chain": {"interceptors": [Refusing()]}}),
        (batch, {"window": Window(2, 60.0, select)}),
    ],
)
async def test_a_failure_and_its_records_are_gone_when_they_are_taken_over(handler, settings):
    """They stayed in reference cycles, thousands of them during a flood of failures."""
    failures.clear()
    around = InterceptorChain("g", **settings.pop("chain", {})) if "chain" in settings else None
    async with World(handler, interceptors=around, **settings) as world:
        gc.collect()
        gc.disable()
        try:
            await world.give(*"abcd")
            await until(lambda: world.is_done)
            assert len(failures) >= 2
            assert [error() for error in failures if error() is not None] == []
        finally:
            gc.enable()
        assert around is None or around._failed == {}


class Waiting:
    """Weak references need their own class."""


async def forever(record: Record) -> None:
    here = Waiting()
    failures.append(weakref.ref(here))
    await asyncio.get_running_loop().create_future()


async def batch_forever(records: list[Record]) -> None:
    await forever(records[0])


class Stacks:
    """The failure side: keeps the stack of each error."""

    def __init__(self) -> None:
        self.stacks: list[str] = []

    async def take_over(self, record, error, parking):
        self.stacks.append(stack_of(error, hides_ours=True))

    def __getattr__(self, name):
        return getattr(TakenOver(), name)


@pytest.mark.parametrize(("handler", "window"), [(forever, None), (batch_forever, WINDOW)])
async def test_a_call_that_takes_too_long_fails_with_the_line_at_which_it_waited(handler, window):
    """The log had a class and a limit, but not which of the calls inside hung."""
    failures.clear()
    async with World(handler, window=window) as world:
        taken = world.work.settling.failures = Stacks()
        gc.collect()
        gc.disable()
        try:
            await world.give(*"ab")
            await world.sweep_after(1.5)
            await until(lambda: world.is_done)
            assert [one() for one in failures if one() is not None] == []
        finally:
            gc.enable()
    assert len(taken.stacks) == 2
    for stack in taken.stacks:
        assert "in forever\n    await asyncio.get_running_loop().create_future()" in stack
        assert stack.splitlines()[-1].startswith("multilane.errors.ProcessingTimeout: ")
