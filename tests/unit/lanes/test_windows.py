"""Windows: batches, columns, unique ones, and acknowledgements by hand."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from lane_world import World, turns, until
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.acknowledgement import Acknowledgement
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.window import Selection, Window, newest_of_each_key
from multilane.wire.records.record import Record

BY_HAND = WorkRules(is_manual=True)


@pytest.fixture(params=[False, True], ids=["records", "rows"])
def as_rows(request):
    """How records wait."""
    return request.param


async def test_a_window_goes_when_it_is_full_and_the_rest_when_its_time_is_up(as_rows):
    windows = []

    async def handler(records: list[Record]) -> None:
        windows.append([r.offset for r in records])

    async with World(handler, as_rows=as_rows, window=Window(3, 60.0)) as world:
        await world.give(*"abcdefgh")
        assert windows == [[0, 1, 2], [3, 4, 5]]
        world.pool.supply.flush()
        await until(lambda: world.is_done)
        assert windows[2:] == [[6, 7]]
        await world.give("a", "b")
        assert len(windows) == 3, "a flush is for what waited then"


async def test_the_latency_is_kept(as_rows):
    windows = []

    async def handler(records: list[Record]) -> None:
        windows.append(len(records))

    async with World(handler, as_rows=as_rows, window=Window(10, 0.001)) as world:
        await world.give("a", "b")
        await until(lambda: world.is_done)
        assert windows == [2]


async def test_a_key_is_in_one_window_at_a_time_and_in_order_there(as_rows):
    gate, windows = asyncio.Event(), []

    async def handler(records: list[Record]) -> None:
        windows.append([r.offset for r in records])
        await gate.wait()

    async with World(handler, as_rows=as_rows, lanes=3, window=Window(2, 60.0)) as world:
        await world.give("a", "a", "a", "a", "b", "c")
        assert windows == [[0, 1], [4, 5]]
        gate.set()
        await until(lambda: world.is_done)
        assert windows[2:] == [[2, 3]]


async def test_only_what_a_batch_function_names_has_failed(as_rows):
    async def handler(records: list[Record]) -> dict[Record, Exception]:
        return {r: ValueError("odd") for r in records if r.offset % 2}

    async with World(handler, as_rows=as_rows, window=Window(4, 60.0)) as world:
        await world.give(*"abcd")
        await until(lambda: world.is_done)
        assert world.failures.failed == [(1, "ValueError"), (3, "ValueError")]
        assert world.failures.successes == 2


async def test_a_batch_function_that_raises_fails_its_whole_batch(as_rows):
    async def handler(records: list[Record]) -> None:
        raise RuntimeError("all")

    async with World(handler, as_rows=as_rows, window=Window(2, 60.0)) as world:
        await world.give("a", "b")
        await until(lambda: world.is_done)
        assert [offset for offset, _ in world.failures.failed] == [0, 1]


async def test_failures_of_something_else_fail_the_batch(as_rows):
    async def handler(records: list[Record]) -> object:
        return {"what": ValueError()}

    async with World(handler, as_rows=as_rows, window=Window(2, 60.0)) as world:
        await world.give("a", "b")
        await until(lambda: world.is_done)
        assert world.failures.failed == [(0, "WrongFailures"), (1, "WrongFailures")]


async def test_columns(as_rows):
    seen = []

    async def handler(batch: pa.RecordBatch) -> dict[int, Exception]:
        seen.append((batch["key"].to_pylist(), batch["offset"].to_pylist()))
        return {1: ValueError("the second row")}

    async with World(handler, as_rows=as_rows, window=Window(3, 60.0)) as world:
        await world.give("a", None, "b")
        await until(lambda: world.is_done)
        assert seen == [([b"a", None, b"b"], [0, 1, 2])]
        assert world.failures.failed == [(1, "ValueError")]


async def test_the_newest_of_each_key_is_handled_and_the_others_are_settled(as_rows):
    handled = []

    async def handler(records: list[Record]) -> None:
        handled.append([r.offset for r in records])

    async with World(handler, as_rows=as_rows, window=Window(6, 60.0, newest_of_each_key)) as world:
        await world.give("a", "b", "a", None, "a", None)
        await until(lambda: world.is_done)
        assert [sorted(window) for window in handled] == [[1, 3, 4, 5]]


async def test_unique_with_a_function_for_single_records(as_rows):
    handled = []

    async def handler(record: Record) -> None:
        handled.append(record.offset)
        if record.offset == 2:
            raise ValueError("no")

    async with World(handler, as_rows=as_rows, window=Window(4, 60.0, newest_of_each_key)) as world:
        await world.give("a", "b", "a", "c")
        await until(lambda: world.is_done)
        assert sorted(handled) == [1, 2, 3]
        assert world.failures.failed == [(2, "ValueError")]


async def test_a_select_function_may_do_what_it_likes_to_its_list(as_rows):
    """A record that the function removed from the list counted as never seen: it was neither handled nor settled."""

    def select(records):
        records.pop()
        return Selection(records)

    async def handler(records: list[Record]) -> None: ...

    async with World(handler, as_rows=as_rows, window=Window(2, 60.0, select)) as world:
        await world.give("a", "b")
        await until(lambda: world.is_done)
        assert world.failures.failed == [(0, "ValueError"), (1, "ValueError")]
        assert world.frontier == 2


@pytest.mark.parametrize(
    ("select", "error"),
    [(lambda records: Selection(records[:1]), "ValueError"), (lambda records: 1 / 0, "ZeroDivisionError")],
)
async def test_a_select_function_that_fails_or_loses_records_fails_its_window(as_rows, select, error):
    async def handler(records: list[Record]) -> None:
        raise AssertionError("not called")

    async with World(handler, as_rows=as_rows, window=Window(2, 60.0, select)) as world:
        await world.give("a", "b")
        await until(lambda: world.is_done)
        assert world.failures.failed == [(0, error), (1, error)]


async def test_a_record_is_settled_when_it_is_acknowledged():
    given: dict[int, Acknowledgement] = {}

    async def handler(record: Record, done: Acknowledgement) -> None:
        given[record.offset] = done

    async with World(handler, rules=BY_HAND) as world:
        await world.give("a", "a", "b", "c")
        assert sorted(given) == [0, 1, 2, 3], "the next of a key does not wait for the acknowledgement"
        assert world.frontier == 0
        given[0]()
        given[0]()
        given[2].acknowledge()
        await turns()
        assert world.frontier == 1
        given[1].reject(ValueError("no"))
        given[3]()
        await until(lambda: world.is_done)
        assert world.failures.failed == [(1, "ValueError")]


async def test_a_function_that_fails_before_its_acknowledgement_has_failed():
    given: list[Acknowledgement] = []

    async def handler(record: Record, done: Acknowledgement) -> None:
        given.append(done)
        raise ValueError("no")

    async with World(handler, rules=BY_HAND) as world:
        await world.give("a")
        await until(lambda: world.is_done)
        given[0]()
        await turns()
        assert world.failures.failed == [(0, "ValueError")]


async def test_a_batch_is_acknowledged_but_for_what_failed(as_rows):
    given: list[Acknowledgement] = []

    async def handler(records: list[Record], done: Acknowledgement) -> dict[Record, Exception]:
        given.append(done)
        return {records[0]: ValueError("no")}

    async with World(handler, as_rows=as_rows, rules=BY_HAND, window=Window(3, 60.0)) as world:
        await world.give("a", "b", "c")
        assert world.frontier == 1
        given[0]()
        await until(lambda: world.is_done)
        assert world.failures.failed == [(0, "ValueError")]


async def test_draining_waits_for_acknowledgements_until_the_deadline():
    given: list[Acknowledgement] = []

    async def handler(record: Record, done: Acknowledgement) -> None:
        given.append(done)

    async with World(handler, rules=BY_HAND) as world:
        await world.give("a", "b")
        draining = asyncio.ensure_future(world.processor.drain(world.clock.monotonic() + 60))
        await turns()
        assert not draining.done()
        for done in given:
            done()
        await draining
        assert world.is_done


async def test_an_acknowledgement_after_the_end_changes_nothing():
    given: list[Acknowledgement] = []

    async def handler(record: Record, done: Acknowledgement) -> None:
        given.append(done)

    async with World(handler, rules=BY_HAND) as world:
        await world.give("a")
        await world.processor.drain(world.clock.monotonic())
        given[0]()
        await turns()
        assert world.frontier == 0


async def test_windows_that_wait_behind_one_go_at_once_when_it_ends(as_rows):
    """Fifty keys with many records each: when their window ends, there is work for every lane."""
    gate, at_once, most = asyncio.Event(), 0, 0

    async def handler(records: list[Record]) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await gate.wait()
        at_once -= 1

    async with World(handler, as_rows=as_rows, lanes=5, window=Window(10, 60.0)) as world:
        await world.give(*[f"k{i % 10}" for i in range(200)])
        gate.set()
        await turns(3)
        gate.clear()
        await turns()
        assert most > 1
        gate.set()
        world.pool.supply.flush()
        await until(lambda: world.is_done)


async def test_what_becomes_due_has_a_window_too():
    handled = []

    async def handler(records: list[Record]) -> None:
        handled.append([r.offset for r in records])

    async with World(handler, window=Window(10, 0.001), due_at=lambda record: 0.01) as world:
        await world.give("a", "b")
        world.clock.advance(1.0)
        await until(lambda: world.is_done)
        assert sorted(offset for window in handled for offset in window) == [0, 1]


async def test_room_that_rejections_give_free_is_used():
    given: list[Acknowledgement] = []

    async def handler(record: Record, done: Acknowledgement) -> None:
        given.append(done)

    async with World(handler, rules=BY_HAND, room=4) as world:
        await world.give(*"abcdefgh")
        assert len(given) == 4
        for done in list(given):
            done.reject(ValueError("no"))
        await until(lambda: len(given) == 8)
        for done in given:
            done()
        await until(lambda: world.is_done)


async def test_a_batch_that_takes_too_long_is_cancelled_and_fails(as_rows):
    async def handler(records: list[Record]) -> None:
        if records[0].key == b"slow":
            await asyncio.Event().wait()

    rules, window = WorkRules(max_processing_time=2.0), Window(2, 60.0)
    async with World(handler, as_rows=as_rows, rules=rules, window=window) as world:
        await world.give("slow", "slow", "a", "b")
        await world.sweep_after(2.0)
        await until(lambda: world.is_done)
        assert world.failures.failed == [(0, "ProcessingTimeout"), (1, "ProcessingTimeout")]
        await world.give("slow2", "c")  # the lane goes on, and the key is free
        assert world.is_done


async def test_a_window_that_does_not_end_in_time_is_abandoned_unsettled(as_rows):
    async def handler(records: list[Record]) -> None:
        await asyncio.Event().wait()

    async with World(handler, as_rows=as_rows, window=Window(2, 60.0)) as world:
        await world.give("a", "a", "b")
        given_up = await world.processor.drain(world.clock.monotonic())
        assert [record.offset for record in given_up] == [0, 1]
        assert world.intake.ledger.unsettled == (0, 1, 2)


async def test_what_a_function_does_to_its_list_decides_nothing(as_rows):
    async def handler(records: list[Record]) -> None:
        records.clear()

    async with World(handler, as_rows=as_rows, window=Window(2, 60.0)) as world:
        await world.give("a", "b", "c", "d")
        assert world.is_done


async def test_interceptors_see_each_record_of_a_batch(as_rows):
    seen = []

    class Sees:
        def on_consume(self, context, record):
            seen.append(record.offset)
            if record.key == b"bad":
                raise ValueError

    async def handler(batch: pa.RecordBatch) -> None:
        seen.append(batch["offset"].to_pylist())

    around = InterceptorChain("g", interceptors=(Sees(),))
    async with World(handler, as_rows=as_rows, window=Window(2, 60.0), interceptors=around) as world:
        await world.give("a", "bad", "bad", "bad")
        await until(lambda: world.is_done)
        assert seen == [0, 1, [0], 2, 3]
        assert world.failures.failed == [(1, "ValueError"), (2, "ValueError"), (3, "ValueError")]
