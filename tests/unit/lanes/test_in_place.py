"""Failed records that are retried in place: the order of a key is kept, and other keys do not wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lane_world import World, turns, until
from multilane.lanes.failing import Failing, FailureRoutes
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.window import Window
from multilane.outcome.backoff import RetryDelay
from multilane.outcome.in_place import InPlace
from multilane.outcome.next_step import RetryPolicy
from multilane.wire.records.record import Record

RULES = WorkRules(max_processing_time=60.0, retries_in_place=True)


class Published:
    """Copies that would be made."""

    def __init__(self):
        self.copies = []

    async def publish(self, copy):
        self.copies.append(copy)
        return 0, 0


class Placed(World):
    """`failing` has the number of failures for each offset."""

    def __init__(self, failing, *, again=2, backoff=None, retry_policy=None, last_step=None, handler=None, **more):
        self.handled, self.failing, self.published = [], dict(failing), Published()
        self.in_place = InPlace(retry_policy or RetryPolicy("t"), again, backoff, self.now)
        super().__init__(handler or self.one, rules=RULES, **more)
        routes = FailureRoutes(self.in_place.retry_policy, self.published, last_step, None, self.in_place)
        self.work.settling.failures = Failing(routes, InterceptorChain("g"), self.clock)

    def now(self):
        return self.clock.monotonic()

    def fails(self, record):
        self.handled.append(record.offset)
        left = self.failing.get(record.offset, 0)
        self.failing[record.offset] = left - 1
        return left > 0

    async def one(self, record: Record) -> None:
        if self.fails(record):
            raise ValueError("not today")


async def listed(*exhausted):
    """A last step."""


async def test_a_key_waits_for_its_failed_record():
    async with Placed({0: 2}) as world:
        await world.give("a", "b", "a")
        await until(lambda: world.is_done)
        assert [offset for offset in world.handled if offset != 1] == [0, 0, 0, 2]
        assert world.in_place.take_exhausted() == ()
        assert world.work.settling.retried == {}


async def test_its_attempts_are_exhausted_and_its_key_continues():
    async with Placed({0: 9}, last_step=listed) as world:
        await world.give("a", "a")
        await until(lambda: world.is_done)
        assert world.handled == [0, 0, 0, 1]
        [one] = world.in_place.take_exhausted()
        assert (one.offset, one.attempts, one.error, one.text) == (
            0,
            3,
            "ValueError",
            "not today",
        )
        assert world.published.copies == []


async def test_a_copy_goes_to_the_error_topic_where_that_is_wanted_and_names_the_live_retry_topic():
    async with Placed({0: 9}, again=0, retry_policy=RetryPolicy("t", "t.retry", "t.error", 3)) as world:
        await world.give("a")
        await until(lambda: world.is_done)
        [copy] = world.published.copies
        assert (copy.topic, world.handled) == ("t.error", [0])
        assert b"t.retry" in dict(copy.headers).values()
        assert len(world.in_place.take_exhausted()) == 1, "it is listed as well"


async def test_others_do_not_wait_for_a_back_off():
    async with Placed({0: 1}, backoff=RetryDelay(delay=10.0)) as world:
        await world.give("a", "b", "a", "b")
        assert sorted(world.handled) == [0, 1, 3]
        world.clock.advance(9.0)
        world.pool.supply.wake_deferred()
        await turns()
        assert len(world.handled) == 3
        world.clock.advance(2.0)
        world.pool.supply.wake_deferred()
        await until(lambda: world.is_done)
        assert world.handled[3:] == [0, 2]


async def test_a_plain_function():
    lock = threading.Lock()

    def plain(record: Record) -> None:
        with lock:
            failed = world.fails(record)
        if failed:
            raise ValueError("not today")

    async with Placed({0: 1, 3: 2}, handler=plain) as world:
        await world.give("a", "b", "a", "c", "c")
        await until(lambda: world.is_done)
        assert [offset for offset in world.handled if offset in (0, 2)] == [0, 0, 2]
        assert [offset for offset in world.handled if offset in (3, 4)] == [3, 3, 3, 4]


@pytest.mark.parametrize("as_rows", [False, True])
async def test_a_window_of_which_some_fail(as_rows):
    """A record that succeeded behind a failed one of its key is handled again after it."""

    async def some(records: list[Record]) -> dict[Record, Exception]:
        return {record: ValueError("not today") for record in records if world.fails(record)}

    async with Placed({0: 1}, handler=some, as_rows=as_rows, lanes=2, window=Window(4, 0.001)) as world:
        await world.give("a", "b", "a", "c", "a")
        await until(lambda: world.is_done)
        of_a = [offset for offset in world.handled if offset in (0, 2, 4)]
        assert of_a in ([0, 2, 0, 2, 4], [0, 2, 0, 4, 2, 4], [0, 2, 4, 0, 2, 4]), of_a
        assert of_a[-3:] == [0, 2, 4]
        assert sorted(offset for offset in world.handled if offset in (1, 3)) == [1, 3]
        assert world.intake.ledger.unsettled == ()


@pytest.mark.parametrize("as_rows", [False, True])
async def test_a_window_that_fails_whole(as_rows):
    calls = []

    async def whole(records: list[Record]) -> None:
        calls.append([record.offset for record in records])
        if any([world.fails(record) for record in records]):
            raise ValueError("not today")

    more = {"handler": whole, "as_rows": as_rows, "lanes": 1, "window": Window(3, 0.001), "last_step": listed}
    async with Placed({1: 9}, **more) as world:
        await world.give("a", "b", "c")
        await until(lambda: world.is_done)
        assert calls == [[0, 1, 2]] * 3
        assert {exhausted.offset for exhausted in world.in_place.take_exhausted()} == {0, 1, 2}


async def test_what_waits_for_its_next_attempt_is_not_settled_by_a_drain():
    async with Placed({0: 9}, backoff=RetryDelay(delay=1_000.0)) as world:
        await world.give("a", "b")
        await asyncio.wait_for(world.processor.drain(world.clock.monotonic()), 30.0)
        assert world.intake.ledger.commit_point().offset == 0
        assert world.intake.ledger.commit_point().runs == ((1, 1),)
