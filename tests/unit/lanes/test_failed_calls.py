"""A failed call leaves no garbage once its record is taken over, even before a garbage collection."""

from __future__ import annotations

import gc
import weakref

import pytest

from lane_world import World, turns, until
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.acknowledgement import Acknowledgement
from multilane.listeners.context import Context
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.window import Selection, Window
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
