"""While most calls fail alike, lanes wait, one record at a time is probed, and no record goes to another topic."""

from __future__ import annotations

import asyncio
import logging

import pytest

from lane_world import World, record_of, turns, until
from multilane.errors import UndecodablePayload
from multilane.lanes.failing import Failing, FailureRoutes
from multilane.lanes.gate import OutageGate
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.acknowledgement import Acknowledgement
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.window import Window
from multilane.metrics.observer import Counts
from multilane.outcome.backoff import RetryDelay
from multilane.outcome.in_place import Resting
from multilane.outcome.next_step import RetryPolicy
from multilane.outcome.outage import Outage, OutageRules, OutageState
from multilane.outcome.parking import Parking
from multilane.wire.records.record import Record

FLOW = RetryPolicy("t", "t.retry", "t.error", 3)


class Published:
    def __init__(self):
        self.offsets = []

    async def publish(self, copy):
        self.offsets.append(int(copy.origin.rpartition("@")[2]))
        return 0, 0


class Guarded(World):
    """`is_down`: every call fails; `bad` offsets fail always."""

    def __init__(self, *, handler=None, is_manual=False, bad=(), **more):
        self.handled, self.is_down, self.bad, self.published = [], False, set(bad), Published()
        self.counts, self.handler_succeeds_once = Counts(), False
        self.outage = Outage(OutageRules(), RetryDelay("exponential", 1.0, 8.0, 2.0))
        clock = self.late_clock = _Late()
        self.gate = OutageGate("orders", self.outage, clock, self.counts)
        rules = WorkRules(60.0, is_manual, retries_in_place=True, gate=self.gate)
        super().__init__(handler or self.one, rules=rules, **more)
        clock.clock = self.clock
        self.gate.count_in(self.queue)
        routes = FailureRoutes(FLOW, self.published, gate=self.gate)
        self.work.settling.failures = Failing(routes, InterceptorChain("g"), self.clock, self.counts)

    def fails(self, record: Record) -> bool:
        self.handled.append(record.offset)
        if self.handler_succeeds_once:
            self.handler_succeeds_once, self.is_down = False, True
            return False
        return self.is_down or record.offset in self.bad

    async def one(self, record: Record) -> None:
        if self.fails(record):
            raise ConnectionError("refused")

    async def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.pool.supply.wake_deferred()
        self.gate._tick()
        await turns(60)

    async def pause(self, keys: int = 40) -> None:
        self.is_down = True
        await self.give(*(f"k{n}" for n in range(keys)))
        await until(lambda: self.outage.state is OutageState.SUSPECTED)
        await turns(60)
        await self.after(1.0)
        assert self.gate.is_shut


class _Late:
    """The world's clock, which is made after the gate."""

    def monotonic(self):
        return self.clock.monotonic() if hasattr(self, "clock") else 0.0

    def wall(self):
        return self.clock.wall()


async def test_nothing_begins_but_a_probe_for_each_back_off():
    async with Guarded() as world:
        await world.pause()
        before = len(world.handled)
        for rest in (1.0, 2.0, 4.0):
            await world.after(rest - 0.1)
            assert len(world.handled) == before
            await world.after(0.11)
            before += 1
            assert len(world.handled) == before
        assert len(set(world.handled[-3:])) == 3, "each time another record"
        assert len(world.published.offsets) == 4, "those before there was a suspicion"
        assert world.counts.total("lanes.outage.probes") == 3


async def test_a_doubted_record_is_not_to_blame_once_one_that_failed_with_it_succeeds():
    """A dependency that comes back for a moment: every record that failed at the first suspicion went to the retry
    topic at the second one, and after a few rounds to the error topic."""
    async with Guarded() as world:
        await world.pause()
        assert len(world.published.offsets) == 4
        for _ in range(3):
            world.is_down = False
            world.handler_succeeds_once = True
            await world.after(1.0)
            assert not world.gate.is_shut
            await until(lambda: world.outage.state is OutageState.SUSPECTED)
            await world.after(1.0)
            assert world.gate.is_shut
        assert len(world.published.offsets) == 4 + 3 * 4, "those before there was a suspicion"


async def test_a_record_that_has_not_failed_is_probed_within_two_rounds():
    """If only poison is left, it looks like an outage: the first good record must not wait behind all of it."""
    async with Guarded(bad=range(40)) as world:
        await world.give(*(f"k{n}" for n in range(40)))
        await turns(60)
        await world.after(1.0)
        assert world.gate.is_shut
        await world.after(1.0)
        await world.give("good")
        assert world.gate.is_shut
        await world.after(2.0)
        assert 40 in world.handled
        assert not world.gate.is_shut
        for _ in range(4):
            await world.after(2.0)
        await until(lambda: world.is_done)
        assert sorted(world.published.offsets) == list(range(40)), "the poison went its way"


async def test_records_that_succeed_the_second_time_end_a_pause_at_the_first_probe():
    async with Guarded() as world:
        await world.pause()
        failed = set(world.handled)
        world.is_down = False
        world.bad = {offset for offset in range(40) if offset not in failed}
        await world.after(1.0)
        assert not world.gate.is_shut


async def test_when_a_probe_succeeds_all_go_on_and_nothing_was_used_up():
    async with Guarded() as world:
        await world.pause()
        world.is_down = False
        await world.after(1.0)
        assert not world.gate.is_shut
        await world.after(2.0)
        await until(lambda: world.is_done)
        assert len(world.published.offsets) == 4
        assert world.errors == []


async def test_the_order_of_a_key_is_kept():
    async with Guarded(lanes=8) as world:
        world.is_down = True
        await world.give(*(f"k{n % 6}" for n in range(30)))
        await turns(60)
        await world.after(1.0)
        assert world.gate.is_shut
        world.is_down = False
        await world.after(1.1)
        await world.after(2.0)
        await until(lambda: world.is_done)
        for key in range(6):
            last = {offset: at for at, offset in enumerate(world.handled) if offset % 6 == key}
            assert sorted(last, key=last.__getitem__) == sorted(last)


async def test_a_closed_gate_leaves_no_timer_behind():
    async with Guarded() as world:
        await world.pause()
        assert world.gate._timer is not None
        world.gate.close()
        assert world.gate._timer is None


async def test_a_poison_goes_its_way_while_others_succeed():
    async with Guarded(bad=range(0, 300, 3)) as world:
        await world.give(*(f"k{n}" for n in range(300)))
        for _ in range(5):
            await world.after(1.1)
        await until(lambda: world.is_done)
        assert not world.gate.is_shut
        assert sorted(world.published.offsets) == list(range(0, 300, 3))


async def test_a_burst_of_poison_is_doubted_once_and_then_goes_its_way():
    async with Guarded(bad=range(20)) as world:
        await world.give(*(f"k{n}" for n in range(200)))
        for _ in range(5):
            await world.after(1.1)
        await until(lambda: world.is_done)
        assert sorted(world.published.offsets) == list(range(20))
        assert max(map(world.handled.count, range(20))) == 2


async def test_what_cannot_be_decoded_is_no_outage():
    class Unreadable(Guarded):
        async def one(self, record: Record) -> None:
            raise UndecodablePayload("no order")

    async with Unreadable() as world:
        await world.give(*(f"k{n}" for n in range(30)))
        await until(lambda: world.is_done)
        assert sorted(world.published.offsets) == list(range(30))


async def test_a_drain_does_not_wait_for_the_end_of_an_outage():
    async with Guarded() as world:
        await world.pause()
        given_up = await asyncio.wait_for(world.processor.drain(world.clock.monotonic() + 100.0), 30.0)
        assert list(given_up) == []
        assert len(world.intake.ledger.unsettled) == 36
        assert world.pool._lanes == set()


async def test_a_drain_in_the_middle_of_a_probe_gives_the_probe_back():
    never = asyncio.Event()

    async def hangs(record: Record) -> None:
        if world.gate.is_shut:
            await never.wait()
        await world.one(record)

    async with Guarded(handler=hangs) as world:
        await world.pause()
        await world.after(1.0)
        assert world.outage.state is OutageState.PROBING
        await asyncio.wait_for(world.processor.drain(world.clock.monotonic()), 30.0)
        assert world.outage.state is OutageState.OPEN


@pytest.mark.parametrize("as_rows", [False, True])
async def test_windows(as_rows):
    async def several(records: list[Record]) -> dict[Record, Exception]:
        return {record: ConnectionError("refused") for record in records if world.fails(record)}

    async with Guarded(handler=several, as_rows=as_rows, lanes=3, window=Window(10, 0.001)) as world:
        world.is_down = True
        await world.give(*(f"k{n}" for n in range(60)))
        await until(lambda: world.outage.state is OutageState.SUSPECTED)
        world.clock.advance(1.1)
        world.gate._tick()
        assert world.gate.is_shut
        await turns(60)
        before = len(world.handled)
        await until(lambda: world.gate._waiting or not as_rows)
        assert len(world.handled) == before
        world.is_down = False
        for _ in range(20):
            world.clock.advance(1.0)
            if not as_rows:
                world.pool.supply.wake_deferred()
            world.gate._tick()
            await turns(60)
        await until(lambda: world.is_done)
        assert len(world.published.offsets) <= 10


async def test_records_that_are_acknowledged_by_hand():
    acknowledgements = []

    async def by_hand(record: Record, done: Acknowledgement) -> None:
        acknowledgements.append((done, world.fails(record)))

    def decide():
        while acknowledgements:
            done, failed = acknowledgements.pop(0)
            if failed:
                done.reject(ConnectionError("refused"))
            else:
                done()

    async with Guarded(handler=by_hand, is_manual=True, lanes=8) as world:
        world.is_down = True
        await world.give(*(f"k{n}" for n in range(20)))
        decide()
        await turns(60)
        await world.after(1.0)
        assert world.gate.is_shut
        await world.after(1.0)
        assert world.outage.state is OutageState.PROBING
        await world.after(0.3)
        assert world.outage.state is OutageState.PROBING, "that the function returned says nothing"
        decide()
        await turns(60)
        assert world.outage.state is OutageState.OPEN
        world.is_down = False
        for _ in range(8):
            await world.after(2.0)
            decide()
            await turns(60)
        await until(lambda: world.is_done)
        assert not world.gate.is_shut


async def test_a_retried_record_that_has_rested_stays_in_place_in_the_next_suspicion_too():
    """It counted as a record that was kept in place, which proves nothing and is retried as usual: a few short outages
    used up its attempts."""
    async with Guarded() as world:
        world.is_down = True
        await world.give(*(f"k{n}" for n in range(20)))
        await until(lambda: world.outage.state is OutageState.SUSPECTED)
        failing, error = world.work.settling.failures, ConnectionError("refused")
        retried = record_of("r", 900, FLOW.retry, headers=(("X-RetryCount", b"0"),))
        for stage in range(2):
            rested = await failing.take_over(retried, error, Parking(FLOW.retry))
            assert isinstance(rested, Resting), stage
            again = await failing.take_over(rested, error, Parking(FLOW.retry))
            assert not isinstance(again, Resting)
            assert dict(again.headers)["X-RetryCount"] == b"%d" % (stage + 1)
            retried = again


async def test_records_that_follow_their_key_lower_no_count_before_they_are_settled():
    """While their copies were being sent, as many successes were missing, and a few failures looked like an outage."""

    class Slow(Published):
        async def publish_in_order(self, copies):
            assert world.gate._count(world.clock.monotonic() + 2.0) == 10
            return [(0, n) for n, _ in enumerate(copies)]

    async with Guarded() as world:
        await world.give(*(f"k{n}" for n in range(10)))
        assert world.gate._count(world.clock.monotonic() + 1.0) == 10
        failing = world.work.settling.failures
        failing._publisher = Slow()
        await failing.follow_key([record_of("a", n) for n in range(5)], Parking(FLOW.retry))


async def test_a_pause_is_counted_as_over_when_the_consumer_ends():
    async with Guarded() as world:
        await world.pause()
        world.gate.close()
        assert world.counts.by("state", "lanes.outage") == {"paused": 1, "resumed": 1}


async def test_the_log_says_when_it_pauses_and_when_it_resumes(caplog):
    with caplog.at_level(logging.WARNING, "multilane"):
        async with Guarded() as world:
            await world.pause()
            world.is_down = False
            await world.after(1.0)
    logged = [record.getMessage() for record in caplog.records if record.name.endswith("gate")]
    assert len(logged) == 2
    assert "consumer orders pauses" in logged[0]
    assert "ConnectionError at " in logged[0]
    assert "consumer orders resumes" in logged[1]
    assert world.counts.by("state", "lanes.outage") == {"paused": 1, "resumed": 1}


async def test_one_window_that_fails_as_a_whole_is_one_failure():
    """All of its records failed alike, for many keys, and that was mistaken for an outage."""

    async def several(records: list[Record]) -> None:
        world.handled += [record.offset for record in records]
        if any(record.offset in world.bad for record in records):
            raise TimeoutError("one of them hangs")

    async with Guarded(handler=several, lanes=1, window=Window(20, 0.001), bad={3}) as world:
        await world.give(*(f"k{n}" for n in range(60)))
        await until(lambda: world.is_done)
        assert world.outage.state is OutageState.CLOSED
        assert sorted(world.published.offsets) == list(range(20))
        assert max(map(world.handled.count, range(60))) == 1


async def test_what_is_left_in_a_retry_topic_and_fails_again_is_no_outage():
    """No other records were left to read, so all failed alike, and the consumer waited for a success for ever."""
    async with Guarded() as world:
        for count in (b"0", b"1"):
            headers = (("X-RetryCount", count),)
            for offset in range(20):
                retried = record_of(f"k{offset}", offset, headers=headers)
                assert world.gate.stays(retried, ConnectionError("refused")) is None
        assert world.outage.state is OutageState.CLOSED
        followers = [record_of(f"k{n}", n, headers=(("X-RetryCount", b"-1"),)) for n in range(8)]
        assert any(world.gate.stays(one, ConnectionError("refused")) for one in followers), "nobody has tried these"
