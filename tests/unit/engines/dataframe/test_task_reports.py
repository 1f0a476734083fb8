"""What the driver makes of the reports of completed tasks."""

from __future__ import annotations

import logging
import pickle
import threading
from types import SimpleNamespace

import pytest
from pyspark.accumulators import Accumulator

from multilane.engines.dataframe.task_reports import CompletedTask, StageWork, TaskReports
from multilane.metrics.observer import Counts

PATIENCE = 20.0


class Context:
    """The part of a Spark context that knows its active stages."""

    def __init__(self):
        self.active = [7]

    def accumulator(self, value, param):
        return Accumulator(-17, value, param)

    def statusTracker(self):
        if self.active is None:
            raise RuntimeError("stopped")
        return SimpleNamespace(getActiveStageIds=lambda: self.active)


@pytest.fixture
def context():
    return Context()


@pytest.fixture
def reports(context):
    made = TaskReports(context)
    yield made
    made.close()


@pytest.fixture
def logged(caplog):
    """Waits for the next line."""
    caplog.set_level(logging.INFO, logger="multilane")
    found, come = [], threading.Semaphore(0)

    class Lines(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())
            come.release()

    handler = Lines()
    logging.getLogger("multilane").addHandler(handler)

    def next_line():
        assert come.acquire(timeout=PATIENCE)
        return found[-1]

    yield next_line
    logging.getLogger("multilane").removeHandler(handler)


def completed(settled, stage=7):
    counts = [("lanes.records.settled", {"consumer": "orders"}, float(settled))]
    return CompletedTask(StageWork.of("shop:app", stage, None), 2.0, {"counts": counts, "failures": []})


def copied(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own


def deliver(reports, task):
    """As Spark does: a copy of the accumulator in the worker adds, and the driver is given the value."""
    accumulator = copied(reports.accumulator)
    sent = type(accumulator.accum_param).addInPlace(accumulator.accum_param, [], [task])
    reports.accumulator.add(copied(sent))


def test_one_total_when_the_stage_is_no_longer_active(context, reports, logged):
    observer = Counts()
    reports.observe("shop:app", observer)
    deliver(reports, completed(30))
    deliver(reports, completed(12))
    context.active = []
    line = logged()
    assert line.startswith("consumer orders, total of 2 tasks (")
    assert "settled 42, failed 0, retried 0, dead 0" in line
    assert observer.total("lanes.records.settled") == 42
    assert reports.accumulator.value == [], "the driver keeps none of them"


def test_a_context_that_was_stopped_ends_what_ran_on_it(context, reports, logged):
    deliver(reports, completed(3))
    context.active = None
    assert logged().startswith("consumer orders, total of 1 task (")


def test_the_end_of_the_process_ends_it_too(reports, logged):
    deliver(reports, completed(3))
    reports.close()
    assert logged().startswith("consumer orders, total of 1 task (")


def test_stages_have_totals_of_their_own(reports, logged):
    deliver(reports, completed(3))
    deliver(reports, completed(4, stage=8))
    assert "settled 4," in logged()
