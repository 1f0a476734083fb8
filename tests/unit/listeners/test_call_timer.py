"""Durations of calls: what is measured, what is sampled, and when it is reported."""

from __future__ import annotations

import asyncio
import threading

import pytest

from multilane.clock import ManualClock
from multilane.listeners.call_timer import BRIEF, DURATION, FULLY_MEASURED, SKIPPED, CallTimer
from multilane.metrics.observer import Observer


class Durations(Observer):
    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def duration(self, name, seconds, times=1, **labels):
        assert (name, labels) == (DURATION, {"consumer": "orders"})
        self.seen.append((pytest.approx(seconds), times))


class Harness:
    def __init__(self) -> None:
        self.clock, self.observer = ManualClock(), Durations()
        self.timer = CallTimer(self.observer, "orders", self.clock)

    async def takes(self, seconds: float) -> str:
        self.clock.advance(seconds)
        return "done"

    def reported(self) -> list[tuple[float, int]]:
        self.timer.report()
        seen, self.observer.seen = self.observer.seen, []
        return seen


async def next_turn() -> None:
    loop = asyncio.get_running_loop()
    turn = loop.create_future()
    loop.call_soon(turn.set_result, None)
    await turn


async def test_every_call_that_takes_a_while_is_measured():
    harness = Harness()
    call = harness.timer.timed_async(harness.takes)
    for seconds in (0.02, 0.02, 7.0):
        assert await call(seconds) == "done"
    assert harness.reported() == [(0.02, 2), (7.0, 1)]


async def test_brief_calls_are_sampled_and_all_are_counted():
    harness = Harness()
    call = harness.timer.timed_async(harness.takes)
    for _ in range(FULLY_MEASURED + 1):
        await call(BRIEF / 10)
    for _ in range(SKIPPED + 1):
        await call(0.5)
    assert harness.reported() == [(BRIEF / 10, FULLY_MEASURED + 1), (0.5, SKIPPED + 1)], "the last one was measured"


async def test_a_long_call_ends_the_sampling():
    harness = Harness()
    call = harness.timer.timed_async(harness.takes)
    for seconds in (*[BRIEF / 10] * (FULLY_MEASURED + 1), *[0.5] * (SKIPPED + 1), 2.0):
        await call(seconds)
    assert harness.reported()[-1] == (2.0, 1)


async def test_calls_that_wait_for_a_sample_are_in_the_report():
    harness = Harness()
    call = harness.timer.timed_async(harness.takes)
    for _ in range(FULLY_MEASURED + 5):
        await call(BRIEF / 10)
    assert harness.reported() == [(BRIEF / 10, FULLY_MEASURED + 5)]
    await call(7.0)
    assert harness.reported() == [(7.0, 1)], "each report begins with measured calls"


async def test_a_call_that_fails_has_a_duration():
    harness = Harness()

    async def fails() -> None:
        harness.clock.advance(0.3)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await harness.timer.timed_async(fails)()
    assert harness.reported() == [(0.3, 1)]


async def test_plain_functions_are_measured_on_their_threads():
    harness = Harness()
    threads: set[int] = set()

    def function(seconds: float) -> int:
        threads.add(threading.get_ident())
        harness.clock.advance(seconds)
        return 5

    call = harness.timer.timed(function)
    assert [await asyncio.to_thread(call, 0.02) for _ in range(4)] == [5] * 4
    assert threading.get_ident() not in threads
    assert harness.reported() == [(0.02, 4)]


async def test_durations_are_reported_together_after_a_second(monkeypatch):
    harness = Harness()
    due: list[float] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda delay, report: due.append(delay))
    call = harness.timer.timed_async(harness.takes)
    for _ in range(3):
        await call(0.02)
    await next_turn()  # the timer is set in it
    assert (due, harness.observer.seen) == ([1.0], [])
    assert harness.reported() == [(0.02, 3)]
    assert harness.reported() == []
