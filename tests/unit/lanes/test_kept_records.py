"""A failed record that no topic and no last step takes stays in place, unless the configuration drops it."""

from __future__ import annotations

import logging

import pytest

from lane_world import World, turns, until
from multilane.errors import UndecodablePayload
from multilane.lanes.failing import Failing, FailureRoutes
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.acknowledgement import Acknowledgement
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.window import Window
from multilane.outcome.backoff import RetryDelay
from multilane.outcome.next_step import RetryPolicy
from multilane.wire.records.record import Record

BACKOFF = RetryDelay("exponential", delay=1.0, maximum=60.0)


class Kept(World):
    """Records whose offsets are in `failing` fail until they are removed from it."""

    def __init__(self, failing, *, keeping=BACKOFF, handler=None, is_manual=False, error=ValueError, **more):
        self.handled, self.failing, self.error = [], set(failing), error
        rules = WorkRules(max_processing_time=60.0, is_manual=is_manual, retries_in_place=keeping is not None)
        super().__init__(handler or self.one, rules=rules, **more)
        routes = FailureRoutes(RetryPolicy("t"), None, keeping=keeping)
        self.work.settling.failures = Failing(routes, InterceptorChain("g"), self.clock)

    def fails(self, record: Record) -> bool:
        self.handled.append(record.offset)
        return record.offset in self.failing

    async def one(self, record: Record) -> None:
        if self.fails(record):
            raise self.error("not today")

    async def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.pool.supply.wake_deferred()
        await turns()


@pytest.mark.parametrize("key", ["a", None])
async def test_it_is_retried_with_back_off_and_never_committed_past(key):
    async with Kept({0}) as world:
        await world.give(key, "b", "b")
        assert world.handled == [0, 1, 2]
        for rest, calls in ((0.9, 1), (0.2, 2), (1.9, 2), (0.2, 3), (3.9, 3), (0.2, 4)):
            await world.after(rest)
            assert world.handled.count(0) == calls
        assert (world.frontier, world.errors) == (0, [])
        world.failing.clear()
        await world.after(8.1)
        await until(lambda: world.is_done)
        assert world.frontier == 3


async def test_its_key_waits_and_other_keys_go_on():
    async with Kept({0}) as world:
        await world.give("a", "a", "b", "c", "b")
        assert sorted(world.handled) == [0, 2, 3, 4]
        world.failing.clear()
        await world.after(1.1)
        assert world.handled[4:] == [0, 1]
        assert world.is_done


async def test_what_cannot_be_decoded_stays_too():
    async with Kept({0}, error=UndecodablePayload) as world:
        await world.give("a", "b")
        await world.after(1.1)
        assert (world.handled.count(0), world.frontier) == (2, 0)


async def test_only_where_it_is_written_a_record_is_dropped():
    async with Kept({0}, keeping=None) as world:
        await world.give("a", "a")
        assert world.handled == [0, 1]
        assert world.is_done


def kept_lines(caplog):
    """Without the lines about the failures themselves."""
    return [r.getMessage() for r in caplog.records if r.name == "multilane.lanes.failing"]


async def test_the_log_names_the_record_and_what_to_do_and_does_not_repeat_itself(caplog):
    with caplog.at_level(logging.WARNING, "multilane"):
        async with Kept(set(range(50))) as world:
            await world.give(*(f"k{i}" for i in range(50)))
            assert len(world.handled) == 50
            [line] = kept_lines(caplog)
            assert "t-3@0" in line
            assert "onFailure: drop" in line
            await world.after(11.0)
            assert len(kept_lines(caplog)) == 2
            assert "50 similar failures since the last warning" in kept_lines(caplog)[1]


async def test_dropped_records_do_not_flood_the_log(caplog):
    with caplog.at_level(logging.WARNING, "multilane"):
        async with Kept(set(range(50)), keeping=None) as world:
            await world.give(*(f"k{i}" for i in range(50)))
            assert len(world.handled) == 50
    assert len([line for line in kept_lines(caplog) if "dropping " in line]) == 1


async def test_a_window_settles_what_succeeded_and_keeps_the_order_of_a_key():
    calls: list[list[int]] = []

    async def several(records: list[Record]) -> dict[Record, Exception]:
        calls.append([record.offset for record in records])
        return {record: ValueError("not today") for record in records if world.fails(record)}

    async with Kept({1}, handler=several, lanes=1, window=Window(5, 0.001)) as world:
        await world.give("a", "b", "b", "c", None)
        await until(lambda: len(world.intake.ledger.unsettled) == 2)
        assert world.intake.ledger.unsettled == (1, 2), "what came behind it of its key is handled once more"
        world.failing.clear()
        await world.after(1.1)
        await until(lambda: world.is_done)
        assert sorted(calls[0]) == [0, 1, 2, 3, 4]
        assert calls[1:] == [[1, 2]]


async def test_a_record_that_was_rejected_by_hand_comes_again():
    async def by_hand(record: Record, done: Acknowledgement) -> None:
        if world.fails(record):
            done.reject(ValueError("not today"))
        else:
            done()

    async with Kept({0}, handler=by_hand, is_manual=True) as world:
        await world.give("a", "b")
        await until(lambda: world.intake.ledger.unsettled == (0,))
        world.failing.clear()
        await world.after(1.1)
        await until(lambda: world.is_done)
        assert world.handled.count(0) == 2
