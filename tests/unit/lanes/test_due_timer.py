"""Many that look at something now and then, with one timer of the loop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

from lane_world import until
from multilane.lanes.due_timer import Beat

PERIOD = 0.02


class Looks:
    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.times = 0
        self._then = then

    def look(self) -> None:
        self.times += 1
        self._then()


async def test_all_that_have_the_same_period_share_a_timer(monkeypatch):
    timers = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def counted(delay, call, *args, **more):
        timers.append(call)
        return call_later(delay, call, *args, **more)

    monkeypatch.setattr(loop, "call_later", counted)
    all_of_them = [Looks() for _ in range(100)]
    for each in all_of_them:
        Beat.of(3600.0).join(each.look)
    assert len(timers) == 1
    timers[0]()
    assert [each.times for each in all_of_them] == [1] * 100
    assert len(timers) == 2, "and again after the next period"


async def test_who_has_left_or_is_gone_is_not_called():
    stays, leaves, gone = Looks(), Looks(), Looks()
    beat = Beat.of(PERIOD)
    for each in (stays, leaves, gone):
        beat.join(each.look)
    await until(lambda: stays.times and leaves.times)
    beat.leave(leaves.look)
    seen = []
    gone._then = lambda: seen.append(1)
    del gone, each
    gc.collect()
    many, before = stays.times, leaves.times
    seen.clear()
    await until(lambda: stays.times > many + 1)
    assert (leaves.times, seen) == (before, [])


async def test_nobody_left_means_no_timer_and_whoever_comes_next_sets_it_again():
    beat, first, second = Beat(PERIOD), Looks(), Looks()
    beat.join(first.look)
    beat.leave(first.look)
    await until(lambda: not beat._is_set)
    beat.join(second.look)
    await until(lambda: second.times)
    assert not first.times


async def test_one_that_fails_keeps_nobody_from_looking():
    reported = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: reported.append(context["message"]))
    fails, others = Looks(lambda: 1 / 0), [Looks() for _ in range(8)]
    beat = Beat(PERIOD)
    for each in (*others[:4], fails, *others[4:]):
        beat.join(each.look)
    await until(lambda: fails.times > 1)
    assert min(each.times for each in others) >= 1
    assert reported
    assert set(reported) == {"Looks.look failed"}


async def test_one_that_leaves_while_others_look_is_not_called_any_more():
    beat = Beat(PERIOD)
    pair: list[Looks] = []

    def end_the_other() -> None:
        for each in pair:
            if not each.times:
                beat.leave(each.look)

    pair += [Looks(end_the_other), Looks(end_the_other)]
    for each in pair:
        beat.join(each.look)
    await until(lambda: max(each.times for each in pair) > 1)
    assert min(each.times for each in pair) == 0
