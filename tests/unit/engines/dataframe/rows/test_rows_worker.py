"""The rows of a task on the lanes of a worker, without Spark: answers as columns, order per key, failures."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from pydantic import BaseModel
from pyspark.sql import Row

from multilane.clock import SystemClock
from multilane.engines.dataframe.rows import row_store, worker
from multilane.engines.dataframe.rows.function import RowFunction, pack, read_function
from multilane.engines.dataframe.rows.row_lanes import LaneSettings
from multilane.engines.dataframe.rows.worker import RowSpec, serve
from multilane.errors import BreakerOpen, WrongRows

SEEN: list = []  # what functions have seen: their module's, because it is imported by name
GIVEN: list = []  # batches that were given to a task
GIVEN_AT_END: list = []
GATE = threading.Event()
CLOCK = SystemClock()


async def pause(seconds):
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


@pytest.fixture(autouse=True)
def fresh():
    for some in (SEEN, GIVEN, GIVEN_AT_END):
        some.clear()
    GATE.clear()
    yield
    GATE.set()
    worker.close_process()


def rows(numbers, keys=None) -> pa.RecordBatch:
    """Columns `id`, `name`, and behind them the key's; with `keys` None each is a row on its own."""
    many = len(numbers)
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": pa.array([f"n{number}" for number in numbers], pa.string()),
            "__key": pa.array([None] * many if keys is None else keys, pa.int64()),
        }
    )


def spec_of(function, **settings) -> RowSpec:
    found, returns = read_function(function, **({"returns": settings.pop("returns")} if "returns" in settings else {}))
    return RowSpec(pack(found), found.name, returns, LaneSettings(**settings), columns=2, has_key=True)


def answers(spec: RowSpec, *batches) -> list[dict]:
    return [row for batch in serve(spec, iter(batches)) for row in batch.to_pylist()]


class Answer(BaseModel):
    total: float
    note: str | None = None


class Large(BaseModel):
    id: int
    name: int


@dataclass
class Order:
    id: int
    name: str


async def doubled(row) -> Answer:
    SEEN.append(row.id)
    await pause(0.001)
    return Answer(total=row.id * 2, note=row.name)


def doubled_plainly(row: Order) -> int:
    SEEN.append(row.id)
    return row.id * 2


def doubled_in_batches(batch: list[Row]) -> list[int]:
    SEEN.append([row.id for row in batch])
    return [row.id * 2 for row in batch]


async def doubled_in_columns(batch: pa.RecordBatch) -> list[int]:
    SEEN.append(batch.column("id").to_pylist())
    return [number * 2 for number in batch.column("id").to_pylist()]


def test_the_answers_of_an_async_function():
    found = answers(spec_of(doubled), rows([1, 2]), rows([3]))
    assert found[0] == {
        "id": 1,
        "name": "n1",
        "result": {"total": 2.0, "note": "n1"},
        "outcome": "done",
        "error": None,
        "attempts": 1,
    }
    assert [row["result"]["total"] for row in found] == [2.0, 4.0, 6.0]


def test_the_answers_of_a_plain_function():
    assert [row["result"] for row in answers(spec_of(doubled_plainly), rows(range(50)))] == [2 * n for n in range(50)]


@pytest.mark.parametrize("function", [doubled_in_batches, doubled_in_columns])
@pytest.mark.parametrize("retries", [0, 1])  # with retries records wait as objects, without as rows of a block
def test_the_answers_of_a_function_of_several(function, retries):
    spec = spec_of(function, batch_size=7, retries=retries)
    found = answers(spec, rows(range(3_000), [n % 5 for n in range(3_000)]), rows([3_000]))
    assert [row["result"] for row in found] == [2 * n for n in range(3_001)]
    assert sorted(n for batch in SEEN for n in batch) == list(range(3_001))
    assert max(map(len, SEEN)) <= 7
    for key in range(5):
        ours = [n for batch in SEEN for n in batch if n % 5 == key and n < 3_000]
        assert ours == sorted(ours)


def test_a_function_that_returns_nothing():
    def nothing(row) -> None: ...

    [row] = answers(spec_of(nothing), rows([1]))
    assert (row["result"], row["outcome"], row["attempts"]) == (None, "done", 1)


async def first_of_each_key_waits(row) -> int:
    SEEN.append(row.id)
    if row.id < 3:
        await asyncio.to_thread(GATE.wait)
    if len(SEEN) == 3 + 20:  # the keys of these wait; everything else has been called
        GATE.set()
    return row.id


def test_a_key_waits_for_its_call_and_no_other_does():
    keys = [0, 1, 2, *[n % 3 for n in range(30)], *range(10, 20), *[None] * 10]
    spec = spec_of(first_of_each_key_waits, lanes=50)
    found = answers(spec, rows(range(len(keys)), keys))
    assert {row["outcome"] for row in found} == {"done"}
    assert set(SEEN[:23]) == {0, 1, 2, *range(33, 53)}
    for key in range(3):
        ours = [n for n in SEEN if n < 33 and keys[n] == key]
        assert ours == sorted(ours)


async def fails_at_two(row) -> int:
    SEEN.append(row.id)
    if row.id % 10 == 2:
        raise ValueError("two")
    return row.id


def test_retries_stay_in_place_and_count_as_attempts():
    found = answers(spec_of(fails_at_two, retries=2, backoff=0.01), rows(range(5), [0] * 5))
    assert SEEN == [0, 1, 2, 2, 2, 3, 4]
    assert [row["attempts"] for row in found] == [1, 1, 3, 1, 1]
    assert (found[2]["outcome"], found[2]["error"], found[2]["result"]) == ("failed", "ValueError: two", None)


def test_rows_of_a_batch_fail_by_themselves():
    def some(batch: list[dict]) -> list[int | ValueError]:
        return [ValueError("two") if row["id"] == 2 else row["id"] for row in batch]

    found = answers(spec_of(some, batch_size=10, retries=1, backoff=0.0), rows(range(4)))
    assert [row["outcome"] for row in found] == ["done", "done", "failed", "done"]
    assert [row["attempts"] for row in found] == [1, 1, 2, 1]
    assert [row["result"] for row in found] == [0, 1, None, 3]


def test_a_batch_function_that_loses_rows():
    def one(batch: list[Row]) -> list[int]:
        return [1]

    found = answers(spec_of(one, batch_size=10), rows(range(4)))
    assert {row["outcome"] for row in found} == {"failed"}
    assert found[0]["error"].startswith("WrongResult: ")
    assert found[0]["error"].endswith("returned 1 results for 4 rows: return one each")


async def hangs_at_one(row) -> int:
    if row.id == 1:
        await asyncio.Event().wait()
    return row.id


def test_a_call_that_takes_too_long():
    found = answers(spec_of(hangs_at_one, timeout=0.2), rows(range(3), [0, 0, 0]))
    assert [row["outcome"] for row in found] == ["done", "failed", "done"]
    assert found[1]["error"].startswith("ProcessingTimeout: hangs_at_one (")
    assert found[1]["error"].endswith("took longer than 0.2 s (timeout)")


def late(row) -> int:
    GATE.wait(1)
    return row.id


def test_the_result_of_a_call_that_ended_too_late_is_not_used():
    [row] = answers(spec_of(late, timeout=0.05), rows([5]))
    assert (row["outcome"], row["result"]) == ("failed", None)


def test_a_result_that_does_not_fit_its_type():
    async def wrong(row) -> Answer:
        return Answer.model_construct(total="many" if row.id == 1 else 2.0)

    found = answers(spec_of(wrong), rows(range(3)))
    assert [row["outcome"] for row in found] == ["done", "failed", "done"]
    assert found[1]["error"] == "WrongResult: row 1 of task 0: result.total is str, and has to be double"
    assert found[1]["result"] is None


def test_a_row_that_does_not_fit_the_model_is_not_retried():
    async def take(row: Large) -> int:
        return row.id

    [row] = answers(spec_of(take, retries=5, backoff=60.0), rows([1]))
    assert row["outcome"] == "failed"
    assert row["error"].startswith(
        "UndecodablePayload: the row is not a valid Large: name: Input should be a valid int"
    )
    assert row["attempts"] == 1


def test_the_breaker_ends_the_task():
    async def never(row) -> int:
        raise ConnectionError("gone")

    with pytest.raises(BreakerOpen):
        answers(spec_of(never, breaker="stop"), rows(range(500)))


async def later(row) -> int:
    SEEN.append(row.id)
    if len(SEEN) < 12:
        raise ConnectionError("gone")
    return row.id


def test_the_breaker_pauses_until_calls_succeed():
    found = answers(spec_of(later, lanes=2, breaker="pause", backoff=0.01), rows(range(50), range(50)))
    failed = [row for row in found if row["outcome"] == "failed"]
    assert len(failed) < 6, "without the pause it would be 11"
    assert len(SEEN) == 50 + 11 - len(failed)


async def timed(row) -> int:
    SEEN.append(CLOCK.monotonic())
    return row.id


def timed_batch(batch: list[dict]) -> list[int]:
    SEEN.append(CLOCK.monotonic())
    return [row["id"] for row in batch]


@pytest.mark.parametrize(("function", "calls"), [(timed, 40), (timed_batch, 20)])
def test_calls_keep_to_their_pace(function, calls):
    sizes, begun = {} if calls == 40 else {"batch_size": 2}, CLOCK.monotonic()
    found = answers(spec_of(function, lanes=10, timeout=0.3, max_per_second=50.0, tasks=1, **sizes), rows(range(40)))
    assert {row["outcome"] for row in found} == {"done"}, "waiting for a turn is no part of a call's time"
    assert len(SEEN) == calls
    assert SEEN[-1] - begun >= (calls - 1) / 50


def noted(row) -> int:
    SEEN.append(row.id)
    return row.id


def test_rows_are_sorted_in_memory_up_to_a_bound():
    numbers = [5, 1, 4, 2, 3]
    ordered = rows(numbers, [0] * 5).append_column("__order", pa.array([5, None, 4, 2, 3]))
    spec = replace(spec_of(noted), sorts=True)
    found = answers(spec, ordered.slice(0, 2), ordered.slice(2))
    assert SEEN == [1, 2, 3, 4, 5]
    assert [row["id"] for row in found] == SEEN
    assert set(found[0]) == {"id", "name", "result", "outcome", "error", "attempts"}
    with pytest.raises(WrongRows, match=r"more than 16 of rows.*maxOffsetsPerTrigger.*tasks="):
        answers(replace(spec, sort_bytes=16), ordered)


async def slow_first(row) -> int:
    """The first row waits for all others that may come before it has ended, and a little for those that may not."""
    SEEN.append(row.id)
    if row.id == 0:
        while len(SEEN) < 4_000:
            await pause(0.001)
        await pause(0.05)
        GIVEN_AT_END.append(len(GIVEN))
    return row.id


def test_rows_behind_a_slow_one_wait_within_a_bound(monkeypatch):
    monkeypatch.setattr(row_store, "MOST_ROWS", 4_000)

    def batches():
        for n in range(20):
            GIVEN.append(n)
            yield rows(range(1_000 * n, 1_000 * (n + 1)))

    serving = serve(spec_of(slow_first, timeout=60.0), batches())
    found = [row for batch in serving for row in batch.to_pylist()]
    assert [row["id"] for row in found] == list(range(20_000))
    assert GIVEN_AT_END == [4]


class Kept:
    """Pickled by value, as functions of a notebook: a new copy with each unpickling."""

    def __init__(self):
        self.calls = 0

    async def __call__(self, row) -> int:
        self.calls += 1
        return self.calls


def test_a_function_keeps_what_it_has_made_for_the_next_task():
    spec = spec_of(Kept())
    assert [answers(spec, rows([1]))[0]["result"] for _ in range(3)] == [1, 2, 3]


def test_who_wants_no_more_rows_ends_it():
    serving = serve(spec_of(doubled), iter([rows([1]), rows([2])]))
    serving.close()
    serving = serve(spec_of(hangs_at_one, timeout=600.0), iter([rows([0] * 2_048), rows([1])]))
    assert next(serving).num_rows == 2_048
    serving.close()
    assert len(answers(spec_of(doubled), rows([1]))) == 1, "the next task is not disturbed"


def test_without_rows_nothing_is_made():
    assert answers(spec_of(doubled), rows([])) == []
    assert not worker._processes


def test_what_is_packed_is_a_function():
    found, _ = read_function(doubled)
    assert isinstance(found, RowFunction)
    assert (found.name, found.is_async) == ("doubled", True)
