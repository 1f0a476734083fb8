"""A member of an error run that was stopped beyond its session does nothing that another member may do meanwhile."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from multilane.clock import ManualClock
from multilane.lanes.fence import Fence
from unit.error_consumer.test_error_partition import WORN, Bench, record, under_way

SESSION = 10.0


class Stopped:
    """A share behind a fence, whose member's last heartbeat was at 0."""

    def __init__(self, **settings):
        self.clock = ManualClock()
        self.member_status = SimpleNamespace(fenced_after=SESSION)
        self.fence = Fence("orders.errors", self.clock)
        self.fence.watch(self.member_status)
        self.bench = Bench(fence=self.fence, **settings)
        self.share, self.sent = self.bench.share, self.bench.gate.sent

    def stop(self, seconds=SESSION + 1):
        """The process is stopped, and continues: nobody says so."""
        self.clock.advance(seconds)

    def answer(self):
        self.member_status.fenced_after = self.clock.monotonic() + SESSION
        self.fence.check()

    async def at_the_fence(self):
        await under_way(lambda: self.fence._waiting)


async def test_records_that_wait_are_not_republished_before_a_heartbeat_is_answered(caplog):
    stopped = Stopped()
    stopped.stop()
    stopped.bench.take(record(0, b"a"), record(1, b"b"))
    await stopped.at_the_fence()
    assert (stopped.sent, stopped.share.frontier) == ([], None)
    assert "starts no record" in caplog.text
    stopped.answer()
    await stopped.bench.finish()
    assert [copy.value for copy in stopped.sent] == [b"0", b"1"]
    assert stopped.share.frontier == 2


async def test_a_shorter_stop_changes_nothing():
    stopped = Stopped()
    stopped.stop(SESSION - 1)
    stopped.bench.take(record(0), record(1))
    await stopped.bench.finish()
    assert (len(stopped.sent), stopped.share.frontier) == (2, 2)


async def test_a_copy_that_waits_for_the_one_before_it_is_not_sent():
    stopped = Stopped(is_open=False)
    stopped.bench.take(record(0), record(1))
    await under_way(lambda: stopped.sent)
    stopped.stop()
    stopped.bench.gate.open()
    await stopped.at_the_fence()
    assert [copy.value for copy in stopped.sent] == [b"0"]
    assert stopped.share.frontier == 1, "the first was acknowledged"
    stopped.answer()
    await stopped.bench.finish()
    assert [copy.value for copy in stopped.sent] == [b"0", b"1"]


async def test_a_copy_without_an_acknowledgement_is_withdrawn_and_sent_again():
    """It may be in a queue of this process, from which it must not be sent."""
    stopped = Stopped(is_open=False)
    stopped.bench.take(record(0))
    await under_way(lambda: stopped.sent)
    stopped.stop()
    assert stopped.fence.check()
    await stopped.at_the_fence()
    stopped.bench.gate.open()
    stopped.answer()
    await stopped.bench.finish()
    assert [copy.value for copy in stopped.sent] == [b"0", b"0"]
    assert (stopped.share.frontier, stopped.bench.tally.republished) == (1, 1)


async def test_a_coroutine_is_cancelled_and_called_again():
    calls, ended, gate = [], [], asyncio.Event()

    async def handler(record):
        calls.append(record.offset)
        await gate.wait()
        ended.append(record.offset)

    stopped = Stopped(handler=handler, max_processing_time=100.0)
    stopped.bench.take(record(0), record(1))
    await under_way(lambda: calls)
    stopped.stop()
    assert stopped.fence.check()
    gate.set()
    await stopped.at_the_fence()
    assert (calls, ended, stopped.share.frontier) == ([0], [], 0)
    stopped.answer()
    await stopped.bench.finish()
    assert (calls, ended, stopped.share.frontier) == ([0, 0, 1], [0, 1], 2)
    assert stopped.bench.tally.kept == []


async def test_a_coroutine_that_ignores_its_cancellation_is_awaited():
    calls, go = [], asyncio.Event()

    async def handler(record):
        calls.append(record.offset)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await go.wait()

    stopped = Stopped(handler=handler, max_processing_time=100.0)
    stopped.bench.take(record(0))
    await under_way(lambda: calls)
    for _ in range(2):
        stopped.stop()
        assert stopped.fence.check()
        stopped.answer()
    go.set()
    await stopped.bench.finish()
    assert (calls, stopped.share.frontier) == ([0], 1)


async def test_a_plain_function_runs_to_its_end_and_no_other_begins():
    calls, go = [], threading.Event()

    def handler(record):
        calls.append(record.offset)
        go.wait(30)

    stopped = Stopped(handler=handler)
    stopped.bench.take(record(0), record(1))
    await under_way(lambda: calls)
    stopped.stop()
    go.set()
    await stopped.at_the_fence()
    assert (calls, stopped.share.frontier) == ([0], 1)
    stopped.answer()
    await stopped.bench.finish()
    assert calls == [0, 1]


@pytest.mark.parametrize("way", ["last step", "dead topic"])
async def test_an_exhausted_record_waits_as_well(way):
    seen = []
    settings = {"last_step": lambda record, reason: seen.append(record.offset)} if way == "last step" else {"dead": "d"}
    stopped = Stopped(**settings)
    stopped.stop()
    stopped.bench.take(record(0, headers=WORN))
    await stopped.at_the_fence()
    assert (seen, stopped.sent) == ([], [])
    stopped.answer()
    await stopped.bench.finish()
    assert (len(seen) + len(stopped.sent), stopped.share.frontier) == (1, 1)


@pytest.mark.parametrize("way", ["drop", "drain"])
async def test_a_share_behind_a_shut_fence_ends_and_settles_nothing(way):
    stopped = Stopped()
    stopped.stop()
    stopped.bench.take(record(0), record(1))
    await stopped.at_the_fence()
    async with asyncio.timeout(10):
        await (stopped.share.drop() if way == "drop" else stopped.share.drain(100.0))
    stopped.answer()
    assert (stopped.sent, stopped.share.frontier, stopped.share.is_busy) == ([], None, False)


async def test_a_copy_in_its_chain_ends_with_its_share():
    stopped = Stopped(is_open=False)
    stopped.bench.take(record(0), record(1))
    await under_way(lambda: stopped.sent)
    stopped.stop()
    assert stopped.fence.check()
    await stopped.at_the_fence()
    async with asyncio.timeout(10):
        await stopped.share.drain(100.0)
    assert (len(stopped.sent), stopped.share.frontier) == (1, 0)
