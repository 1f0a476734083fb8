"""Which records the begun table names: those for which a function of the application runs, or may run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from lane_world import PARTITION, World, turns, until
from multilane.lanes.begun import FIRST_SLOT, IDLE, SLOT_WORDS, BegunTable, LaneMarks, Name
from multilane.lanes.failing import Failing, FailureRoutes
from multilane.lanes.watch import SuspectIsolation, Watch
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.acknowledgement import Acknowledgement
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.window import Selection, Window
from multilane.outcome.next_step import RetryPolicy
from multilane.wire.records.record import Record

NAME = Name("brokers", "group", *PARTITION)


class Marked:
    """A world that writes a begun table."""

    def __init__(self, directory, handler: Callable[..., object], *, is_manual: bool = False, **more) -> None:
        self.table = BegunTable(directory)
        marks = LaneMarks(self.table, {PARTITION.topic: self.table.number_of(NAME)})
        self.watch = Watch(SuspectIsolation(), marks, {PARTITION.topic: NAME})
        rules = WorkRules(60.0, is_manual=is_manual, watch=self.watch)
        self.world = World(handler, rules=rules, **more)

    @property
    def marked(self) -> list[tuple[int, int]]:
        """The first and the last offset of each slot in use."""
        words = self.table.words
        slots = [FIRST_SLOT + 1 + number * SLOT_WORDS for number in range(words[2])]
        return sorted((words[at], max(words[at], words[at + 1])) for at in slots if words[at] != IDLE)


async def test_a_record_is_marked_until_it_is_acknowledged(tmp_path):
    """A crash in work that goes on after the function has returned named nobody."""
    given: dict[int, Acknowledgement] = {}

    async def handle(record: Record, done: Acknowledgement) -> None:
        given[record.offset] = done

    case = Marked(tmp_path, handle, is_manual=True, lanes=2)
    async with case.world as world:
        await world.give(*"abcd")
        await until(lambda: len(given) == 4)
        await turns()
        assert case.marked == [(0, 0), (1, 1), (2, 2), (3, 3)]
        given[1]()
        given[2].reject(ValueError("rejected"))
        await turns()
        assert case.marked == [(0, 0), (3, 3)]
        given[0]()
        given[3]()
        await until(lambda: world.is_done)
        assert case.marked == []
        for _ in range(20):
            given.clear()
            await world.give("a")
            await until(lambda: given)
            next(iter(given.values()))()
            await until(lambda: world.is_done)
        assert case.table.words[2] <= 6, "slots are used again: one for each lane and each open record"


async def test_a_batch_keeps_one_mark_and_an_abandoned_record_none(tmp_path):
    given: list[Acknowledgement] = []

    async def handle(records: list[Record], done: Acknowledgement) -> None:
        given.append(done)

    case = Marked(tmp_path, handle, is_manual=True, lanes=1, window=Window(3, 0.001))
    async with case.world as world:
        await world.give(*"abc")
        await until(lambda: given)
        await turns()
        assert case.marked == [(0, 2)]
        await world.processor.drain(world.clock.monotonic())
        assert case.marked == []


@pytest.mark.parametrize("is_early", [True, False], ids=["acknowledged", "failed"])
async def test_a_record_that_is_settled_when_its_function_ends_leaves_no_mark(tmp_path, is_early):
    async def handle(record: Record, done: Acknowledgement) -> None:
        if not is_early:
            raise ValueError("bad")
        done()
        await turns()

    case = Marked(tmp_path, handle, is_manual=True, lanes=1)
    async with case.world as world:
        await world.give("a", "b")
        await until(lambda: world.is_done)
        assert case.marked == []


async def test_error_interceptors_and_last_steps_are_marked_and_what_waits_beside_them_is_not(tmp_path):
    """Another record was alone in the table when one of them crashed the process."""
    seen: dict[str, list[tuple[int, int]]] = {}

    class Note:
        def on_error(self, context, record, error):
            seen["interceptor"] = case.marked

    async def last(context, record, error):
        seen["last step"] = case.marked

    async def handle(record: Record) -> None:
        raise ValueError("bad")

    chain = InterceptorChain("g", error_interceptors=(Note(),), has_last_step=True)
    case = Marked(tmp_path, handle, lanes=1)
    async with case.world as world:
        routes = FailureRoutes(RetryPolicy("t"), None, last_step=last, watch=case.watch)
        world.work.settling.failures = Failing(routes, chain, world.clock)
        await world.give("a")
        await until(lambda: world.is_done)
        assert seen == {"interceptor": [(0, 0)], "last step": [(0, 0)]}


async def test_a_select_function_is_marked_with_its_window(tmp_path):
    seen = []

    def select(records: Sequence[Record]) -> Selection:
        seen.append(case.marked)
        if len(seen) == 2:
            raise ValueError("bad")
        return Selection([], list(records))

    async def handle(records: list[Record]) -> None:
        raise AssertionError("all are skipped")

    case = Marked(tmp_path, handle, lanes=1, window=Window(3, 0.001, select))
    async with case.world as world:
        for _ in range(2):
            await world.give(*"abc")
            await until(lambda: world.is_done)
            assert case.marked == []
        assert seen == [[(0, 2)], [(3, 5)]]
