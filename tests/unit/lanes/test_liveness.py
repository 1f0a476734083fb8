"""Ready and live: what the probes of a run say."""

from __future__ import annotations

from multilane.lanes.liveness import CALLS, MEMBERS, PROGRESS_WITHIN, REPORTS_WITHIN, Liveness
from multilane.metrics.observer import Gauge

ORDERS = {"consumer": "orders"}
LONGEST = {"orders": 5.0}


def gauges(members=1, calls=0):
    return [Gauge(MEMBERS, ORDERS, members), Gauge(CALLS, ORDERS, calls)]


def reported(liveness, until, source=None, **values):
    """A report every second."""
    for now in range(until + 1):
        liveness.note_gauges(source, gauges(**values), now)
    return until


def test_a_run_is_ready_when_every_consumer_has_a_member():
    liveness = Liveness()
    assert liveness.unready(["orders"], 0) == ["consumer orders is not in its group"]
    liveness.note_gauges(1, gauges(members=0), 0)
    assert liveness.unready(["orders"], 0) == ["consumer orders is not in its group"]
    liveness.note_gauges(2, gauges(members=1), 0)
    assert liveness.unready(["orders"], 0) == []
    assert liveness.unready(["orders", "bills"], 0) == ["consumer bills is not in its group"]
    liveness.forget(2)
    assert liveness.unready(["orders"], 0) == ["consumer orders is not in its group"]


def test_a_run_that_starts_is_live():
    assert Liveness().stalled(LONGEST, (), 10_000) == []


def test_a_process_that_reports_no_more_is_neither_ready_nor_live():
    liveness = Liveness()
    liveness.note_gauges(1, gauges(), 0)
    liveness.note_gauges(2, gauges(), REPORTS_WITHIN)
    assert liveness.stalled(LONGEST, (), REPORTS_WITHIN) == []
    late = ["1 of 2 processes that run lanes have not reported for 31 s"]
    assert liveness.stalled(LONGEST, (), REPORTS_WITHIN + 1) == late
    assert liveness.unready(["orders"], REPORTS_WITHIN + 1) == late
    liveness.forget(1)
    assert liveness.stalled(LONGEST, (), REPORTS_WITHIN + 1) == []


def test_records_calls_without_progress_stall():
    liveness, limit = Liveness(), int(PROGRESS_WITHIN)
    now = reported(liveness, limit, calls=3)
    assert liveness.stalled(LONGEST, (), now) == []
    now = reported(liveness, limit + 1, calls=3)
    assert liveness.stalled(LONGEST, (), now) == ["consumer orders: no progress for 61 s, while 3 calls run"]
    assert liveness.stalled(LONGEST, {"orders"}, now) == [], "it is paused"
    assert liveness.stalled({"orders": 100.0}, (), now) == [], "calls may take that long"
    liveness.note_progress("orders", now)
    assert liveness.stalled(LONGEST, (), now) == []


def test_time_with_nothing_to_do_does_not_count():
    liveness = Liveness()
    liveness.note_progress("orders", 0)
    now = reported(liveness, 500)
    liveness.note_gauges(None, gauges(calls=1), now + 1)
    assert liveness.stalled(LONGEST, (), now + 1) == []


def test_progress_of_one_worker_counts_for_its_consumer_and_no_other():
    liveness = Liveness()
    bills = Gauge(CALLS, {"consumer": "bills"}, 1)
    for now in range(200):
        liveness.note_gauges(1, [*gauges(calls=1), bills], now)
        liveness.note_progress("orders", now)
    stalled = liveness.stalled({"orders": 5.0, "bills": 5.0}, (), 199)
    assert stalled == ["consumer bills: no progress for 199 s, while 1 calls run"]
