"""The rows of a task, on lanes in a worker's process."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from multilane.engines.dataframe import worker
from multilane.engines.dataframe.worker import StageSpec, serve
from multilane.errors import ConfigError, WrongRows
from unit.spark.stage.stage_shop import NotedApp


@pytest.fixture
def spec(tmp_path):
    NotedApp.made = 0
    yield StageSpec(f"{NotedApp.__module__}:NotedApp", "shop:app", "orders", str(tmp_path))
    worker.close_all()


def rows(*places, value=b"good") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"] * len(places), pa.binary()),
            "value": pa.array([value] * len(places), pa.binary()),
            "topic": pa.array(["t"] * len(places), pa.string()),
            "partition": pa.array([partition for partition, _ in places], pa.int32()),
            "offset": pa.array([offset for _, offset in places], pa.int64()),
            "timestamp": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * len(places), pa.timestamp("us", "UTC")),
        }
    )


def told(spec, *batches) -> list[tuple]:
    return [tuple(row.values()) for batch in serve(spec, iter(batches)) for row in batch.to_pylist()]


def test_a_row_for_each_record(spec):
    batches = [rows((0, 1), (0, 2), (1, 7)), rows((1, 8)), rows((1, 9), value=b"bad")]
    found = told(spec, *batches)
    assert sorted(found) == [
        ("t", 0, 1, "done", None),
        ("t", 0, 2, "done", None),
        ("t", 1, 7, "done", None),
        ("t", 1, 8, "done", None),
        ("t", 1, 9, "dead", "ValueError: not today"),
    ]


def test_the_application_is_made_once_and_each_task_is_at_its_home(spec):
    before = os.getcwd()
    for number in range(3):
        told(spec, rows((0, number)))
        assert os.getcwd() == before
    assert NotedApp.made == 1
    assert {where for *_, where in NotedApp.seen} == {os.path.realpath(spec.home)}


def test_without_rows_nothing_is_made(spec):
    assert told(spec, rows()) == []
    assert told(spec) == []
    assert NotedApp.made == 0


def test_a_record_that_was_handled_may_come_again_in_another_task(spec):
    assert told(spec, rows((0, 5))) == told(spec, rows((0, 5)))
    assert len(NotedApp.seen) == 2


def test_rows_in_any_order_are_brought_in_theirs(spec):
    places = [(partition, offset) for partition in range(3) for offset in range(50)]
    places = places[1::2] + places[::2][::-1]
    sorting = StageSpec(spec.factory, spec.target, spec.consumer, spec.home, sorts=True)
    found = told(sorting, rows(*places[:70]), rows(*places[70:]))
    assert sorted((partition, offset) for _, partition, offset, *_ in found) == sorted(places)
    for partition in range(3):
        assert [offset for p, offset, *_ in NotedApp.seen if p == partition] == list(range(50))


def test_rows_in_the_wrong_order_end_the_task(spec):
    with pytest.raises(WrongRows, match="t-0: offset 2 comes after 3"):
        told(spec, rows((0, 3)), rows((0, 2)))
    assert told(spec, rows((0, 2))), "the next task is not disturbed"


def test_who_wants_no_more_rows_ends_it(spec):
    serving = serve(spec, iter([rows((0, 1)), rows((0, 2))]))
    next(serving)
    serving.close()
    assert told(spec, rows((0, 1)))


def test_a_home_that_is_not_here(spec):
    nowhere = StageSpec(spec.factory, spec.target, spec.consumer, f"{spec.home}/nowhere")
    with pytest.raises(ConfigError, match=r"nowhere is not on .*multilane pack"):
        told(nowhere, rows((0, 1)))
