"""Batches whose worker process died: they are handled once more, record by record."""

from __future__ import annotations

from types import SimpleNamespace

from lane_world import World, turns, until
from multilane.clock import ManualClock
from multilane.lanes.fence import Fence
from multilane.lanes.work_rules import WorkRules
from multilane.lanes.worker import WorkerDied
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.window import Window
from multilane.wire.records.record import Record


class Dying:
    """A function whose worker dies with every batch that has a record of the key `crash`."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.after = lambda: None  # each call that began

    async def __call__(self, records: list[Record]) -> None:
        self.calls.append([record.offset for record in records])
        self.after()
        if any(record.key == b"crash" for record in records):
            raise WorkerDied("killed")


async def test_behind_one_that_kills_its_worker_and_stays_in_place_its_key_waits():
    function = Dying()
    rules = WorkRules(60.0, retries_in_place=True)

    async def stays(record, error, parking):
        return record._replace() if len(function.calls) < 5 else None

    async with World(function, lanes=1, window=Window(5, 0.01), rules=rules) as world:
        world.failures.take_over = stays
        await world.give("a", "crash", "crash", "b")
        await until(lambda: world.is_done)
    assert function.calls[:4] == [[0, 1, 2, 3], [0], [1], [3]]
    assert function.calls[4:] == [[1, 2], [1], [2]]


async def test_while_the_fence_is_shut_no_record_of_the_batch_begins():
    function, clock, member_status = Dying(), ManualClock(), SimpleNamespace(fenced_after=10.0)
    fence = Fence("orders", clock)
    fence.watch(member_status)

    def stop() -> None:
        """The process is stopped beyond its session while the first record is handled alone."""
        if function.calls == [[0, 1, 2], [0]]:
            clock.advance(20.0)

    function.after = stop
    async with World(function, lanes=1, window=Window(5, 0.01), rules=WorkRules(60.0, fence=fence)) as world:
        await world.give("a", "b", "crash")
        await until(lambda: fence.is_shut)
        await turns()
        assert function.calls == [[0, 1, 2], [0]]
        member_status.fenced_after = 60.0
        fence.check()
        await until(lambda: world.is_done)
    assert function.calls[2:] == [[1, 2], [1], [2]]


async def test_a_record_that_succeeds_alone_leaves_no_context_of_its_first_call():
    """Contexts of failed calls are kept for the error interceptors."""
    chain = InterceptorChain("g", has_last_step=True)
    chain.on_failure = lambda record, error: None

    class Note:
        def on_consume(self, context, record):
            context["seen"] = record.offset

    chain._interceptors = (Note(),)
    async with World(Dying(), lanes=1, window=Window(5, 0.01), rules=WorkRules(60.0), interceptors=chain) as world:
        await world.give("a", "crash", "b")
        await until(lambda: world.is_done)
    assert set(chain._failed) == {Record("t", 3, 1, 0, 0, None, None)}
