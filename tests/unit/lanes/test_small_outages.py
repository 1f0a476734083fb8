"""Outages of topics with one or two keys, or a few records: nothing is given up while they last."""

from __future__ import annotations

import asyncio

import pytest

from lane_world import World, turns, until
from multilane.lanes.failing import Failing, FailureRoutes
from multilane.lanes.gate import OutageGate
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.window import Window
from multilane.metrics.observer import Counts
from multilane.outcome.backoff import RetryDelay
from multilane.outcome.giving_up import GivingUp
from multilane.outcome.next_step import RetryPolicy
from multilane.outcome.outage import Outage, OutageRules
from multilane.wire.records.record import Record

BACKOFF = RetryDelay("exponential", 1.0, 8.0, 2.0)


class Published:
    def __init__(self):
        self.offsets = []

    async def publish(self, copy):
        self.offsets.append(int(copy.origin.rpartition("@")[2]))
        return 0, 0


class Shop(World):
    """A consumer without a retry topic. `is_down`: every call is refused; `bad` offsets fail always."""

    def __init__(self, *, bad=(), handler=None, last_step=None, retry_policy=None, **more):
        self.is_down, self.bad, self.handled, self.published = False, dict(bad), [], Published()
        self.gate = OutageGate("orders", Outage(OutageRules(), BACKOFF), _Clock(self), Counts())
        rules = WorkRules(60.0, retries_in_place=True, gate=self.gate)
        super().__init__(handler or self.one, rules=rules, **more)
        self.gate.count_in(self.queue)
        routes = FailureRoutes(
            retry_policy or RetryPolicy("t", None, "t.error"),
            self.published,
            last_step,
            gate=self.gate,
            giving_up=GivingUp(BACKOFF),
        )
        self.work.settling.failures = Failing(routes, InterceptorChain("g"), self.clock, Counts())

    def check(self, record: Record) -> None:
        if self.is_down:
            raise ConnectionRefusedError("refused")
        if record.offset in self.bad:
            raise self.bad[record.offset]
        self.handled.append(record.offset)

    async def one(self, record: Record) -> None:
        self.check(record)

    async def after(self, seconds: float, step: float = 0.5) -> None:
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.clock.advance(step)
            self.pool.supply.wake_deferred()
            self.gate._tick()
            await turns(30)


class _Clock:
    """The world's clock, which is made after the gate."""

    def __init__(self, world):
        self.world = world

    def monotonic(self):
        return self.world.clock.monotonic() if hasattr(self.world, "clock") else 0.0


@pytest.mark.parametrize("keys", [["a"] * 6, ["a", "b"] * 3, ["a", "b", "c", "d"], [None] * 4], ids=repr)
async def test_nothing_is_given_up_while_a_dependency_is_down(keys):
    """Records of fewer than three keys, and the first four of any, went to the error topic."""
    async with Shop() as world:
        world.is_down = True
        await world.give(*keys)
        await world.after(120)
        assert world.published.offsets == []
        world.is_down = False
        await world.after(30)
        await until(lambda: world.is_done)
        assert sorted(world.handled) == list(range(len(keys)))
        assert [n for n in world.handled if keys[n] == "a"] == [n for n, key in enumerate(keys) if key == "a"]
        assert world.published.offsets == []


async def test_a_record_that_times_out_by_itself_is_given_up_once_another_has_succeeded():
    async with Shop(bad={0: TimeoutError("slow")}) as world:
        await world.give("a", "a")
        await world.after(20)
        assert world.published.offsets == [], "nothing shows whether it is to blame"
        await world.give("b")
        await world.after(15)
        assert world.published.offsets == [0]
        assert world.handled == [2, 1]


async def test_a_topic_of_nothing_but_poison_goes_on_after_a_while():
    async with Shop(bad={n: TimeoutError("slow") for n in range(3)}) as world:
        await world.give("a", "a", "a")
        for gone in range(3):
            assert len(world.published.offsets) == gone
            await world.after(615)
        assert world.published.offsets == [0, 1, 2]


async def test_poison_that_does_not_look_like_an_outage_goes_at_once():
    async with Shop(bad={0: ValueError("bad")}) as world:
        await world.give("a", "a")
        assert (world.published.offsets, world.handled) == ([0], [1])


async def test_a_last_step_is_not_taken_in_an_outage():
    taken = []

    async def last(context, record, error):
        taken.append(record.offset)

    async with Shop(last_step=last, retry_policy=RetryPolicy("t")) as world:
        world.is_down = True
        await world.give("a", "a")
        await world.after(60)
        world.is_down = False
        await world.after(15)
        assert (taken, world.handled) == ([], [0, 1])


async def test_records_go_to_the_retry_topic_as_ever():
    """That is not final: only what leaves it for the error topic is."""
    async with Shop(retry_policy=RetryPolicy("t", "t.retry", "t.error", 3)) as world:
        world.is_down = True
        await world.give("a")
        assert world.published.offsets == [0]


async def test_what_comes_from_the_retry_topic_for_the_last_time_stays():
    async with Shop(retry_policy=RetryPolicy("main", "t", "t.error", 1)) as world:
        world.is_down = True
        await world.give("a", "a", "b")
        await world.after(60)
        assert world.published.offsets == []
        world.is_down = False
        await world.after(15)
        assert sorted(world.handled) == [0, 1, 2]


@pytest.mark.parametrize("as_rows", [False, True])
async def test_a_window_stays_as_a_whole(as_rows):
    shops = []

    async def several(records: list[Record]) -> None:
        for record in records:
            shops[0].check(record)

    async with Shop(handler=several, as_rows=as_rows, lanes=2, window=Window(3, 0.001)) as world:
        shops.append(world)
        world.is_down = True
        await world.give("a", "a", "b")
        for _ in range(60):
            await world.after(1.0)
        assert world.published.offsets == []
        world.is_down = False
        async with asyncio.timeout(30):
            while not world.is_done:
                await world.after(1.0)
            assert sorted(set(world.handled)) == [0, 1, 2]
