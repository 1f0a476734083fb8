"""What a stage logs in a worker process, and what its tasks report to the driver."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from multilane.clock import ManualClock
from multilane.engines.dataframe.worker_progress import WorkerProgress
from multilane.metrics.observer import Counts
from multilane.wire.records.record import Record


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="multilane")
    return lambda: [record.getMessage() for record in caplog.records]


class World:
    def __init__(self):
        self.clock, self.observer = ManualClock(), Counts()
        self.lanes = SimpleNamespace(settled=0, received=0)
        self.progress = WorkerProgress(self.observer, self.clock)

    def begin(self, *, in_stream=False):
        self.progress.begin_task({"orders": self.lanes}, list, in_stream=in_stream)

    def end(self, total="total of task 0"):
        return self.progress.end_task({"orders": self.lanes}, total)

    def fail(self, offset):
        try:
            int("no number")
        except ValueError as error:
            self.progress.failures.note("orders", Record("orders", 0, offset, 0, 0, b"k", b"v"), error)
        self.progress.counts.count("lanes.records.dead", consumer="orders")


@pytest.fixture
async def world():
    made = World()
    yield made
    await made.progress.close()


async def test_each_task_of_a_batch_has_its_own_total(world, lines):
    for task in range(2):
        world.begin()
        world.lanes.settled += 5
        world.fail(task)
        world.clock.advance(3.0)
        report = world.end(f"total of task {task}")
        counts = {name: value for name, _, value in report["counts"]}
        assert counts == {"lanes.records.settled": 5, "lanes.records.dead": 1}
        assert [one["count"] for one in report["failures"]] == [1]
    first, *totals = lines()
    assert first.startswith("consumer orders: orders-0@0, key #")
    assert "Traceback" in first, "and not again for the second task"
    for task, line in enumerate(totals):
        assert line.startswith(f"consumer orders, total of task {task} (3 s): settled 5, failed 1, retried 0, dead 1.")
        assert "Errors: 1 x ValueError at" in line
    assert world.observer.total("lanes.records.settled") == 10


async def test_a_task_that_did_nothing_logs_nothing(world, lines):
    world.begin()
    assert world.end() == {"counts": [], "failures": []}
    assert lines() == []


async def test_tasks_of_a_stream_report_without_a_line_each(world, lines):
    for _ in range(3):
        world.begin(in_stream=True)
        world.lanes.settled += 2
        assert world.end(None)["counts"] == [("lanes.records.settled", {"consumer": "orders"}, 2.0)]
    assert lines() == []
    world.clock.advance(10.0)
    world.begin()
    assert lines() == ["consumer orders: settled 6 (1/s), failed 0, retried 0, dead 0"], "before a batch begins"
    world.end()
    assert len(lines()) == 1
