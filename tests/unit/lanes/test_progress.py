"""The log of a run: the first failure of a kind, a line every ten seconds, and the totals at the end."""

from __future__ import annotations

import json
import logging

import pytest

from multilane.clock import ManualClock
from multilane.lanes.failure_log import FailureCollector, FailureLog
from multilane.lanes.progress import DEAD, REPEATED, RETRIED, SETTLED, Progress
from multilane.metrics.observer import Counts, Gauge, Observer, ReportBuffer
from multilane.wire.records.record import Record

HOSTILE = "\n2026-01-01 00:00:00 INFO all is well\x1b[2J"


def record(offset=17, key=b"ann@example.org"):
    return Record("orders", 3, offset, 0, 0, key, b"v")


def _raise(text):
    raise ValueError(text)


def failure(text="no stock"):
    try:
        _raise(text)
    except ValueError as error:
        return error


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="multilane")
    return lambda: [record.getMessage() for record in caplog.records]


def test_the_first_of_a_kind_is_logged_with_its_traceback_and_record(clock, lines, caplog):
    log = FailureLog(clock)
    for offset in range(50):
        log.note("orders", record(offset), failure())
    [logged] = lines()
    assert logged.startswith("consumer orders: orders-3@0, key #")
    assert "ValueError at lanes/test_progress.py:" in logged
    assert "no stock" in logged
    assert "\n    Traceback (most recent call last):\n" in logged
    assert "in _raise\n" in logged
    assert caplog.records[0].levelno == logging.ERROR


def test_the_key_itself_is_not_logged(clock, lines):
    FailureLog(clock).note("orders", record(), failure())
    assert "ann@example.org" not in lines()[0]


def test_no_text_of_an_error_forges_a_line(clock, lines):
    FailureLog(clock).note("orders", record(), failure(f"boom{HOSTILE}"))
    logged = lines()[0].split("\n")
    assert all(line.isprintable() for line in logged)
    assert not any(line.startswith("2026") for line in logged)


def test_without_anybody_who_logs_progress_counts_come_every_ten_seconds(clock, lines):
    log = FailureLog(clock)
    for second in range(25):
        log.note("orders", record(second), failure())
        clock.advance(1.0)
    assert next(line for line in lines() if "since the last summary" in line).count("11 x ValueError") == 1
    assert len(lines()) == 3  # the first failure, and two summaries


def test_progress_has_a_line_every_ten_seconds_while_anything_happens(clock, lines):
    progress = Progress(clock=clock)
    progress.begin(0.0)
    progress.note([(SETTLED, {"consumer": "orders"}, 1_200.0)])
    assert progress.due == 10.0
    progress.log_progress(10.0)
    assert lines() == ["consumer orders: settled 1,200 (120/s), failed 0, retried 0, dead 0"]
    progress.log_progress(20.0)
    assert len(lines()) == 1, "nothing happened since"


def test_an_outage_is_distinguished_from_poison(clock, lines, caplog):
    progress = Progress(clock=clock)
    progress.begin(0.0)
    for number in range(40):
        progress.failures.note("orders", record(number, b"%d" % number), failure())
    progress.note([(SETTLED, {"consumer": "orders"}, 40.0), (RETRIED, {"consumer": "orders"}, 30.0)])
    progress.note([(DEAD, {"consumer": "orders"}, 10.0)])
    progress.log_progress(10.0)
    assert "settled 40 (4/s), failed 40, retried 30, dead 10. Looks like an outage: 100% of calls" in lines()[-1]
    assert "Errors: 40 x ValueError at lanes/test_progress.py:" in lines()[-1]
    assert caplog.records[-1].levelno == logging.WARNING
    for number in range(4):
        progress.failures.note("orders", record(number), failure())
    progress.note([(SETTLED, {"consumer": "orders"}, 100.0), (RETRIED, {"consumer": "orders"}, 4.0)])
    progress.note([(REPEATED, {"consumer": "orders"}, 3.0)])
    progress.log_progress(20.0)
    assert "Looks like poison: only one key fails (4 failures) while 99 records succeed" in lines()[-1]
    progress.close(30.0)
    assert lines()[-1].startswith("consumer orders, run total (30 s): settled 140, failed 44, retried 34, dead 10")
    assert "44 x ValueError at" in lines()[-1]


def test_a_pause_in_an_outage_is_known_until_all_members_go_on(clock):
    progress = Progress(clock=clock)
    paused, resumed = (("lanes.outage", {"consumer": "orders", "state": state}, 1.0) for state in ("paused", "resumed"))
    progress.note([(SETTLED, {"consumer": "orders"}, 1.0), paused, paused])
    assert progress.facts()["orders"]["paused"]
    progress.note([resumed])
    assert progress.facts()["orders"]["paused"]
    progress.note([resumed])
    assert not progress.facts()["orders"]["paused"]


def test_a_line_reports_that_an_outage_pauses_a_consumer(clock, lines):
    progress = Progress(clock=clock)
    progress.begin(0.0)
    paused, resumed = (("lanes.outage", {"consumer": "orders", "state": state}, 1.0) for state in ("paused", "resumed"))
    for count in (paused, resumed):
        progress.failures.note("orders", record(), failure())
        progress.note([count])
        progress.log_progress(10.0)
    assert [" Members paused by an outage: 1." in line for line in lines()[-2:]] == [True, False]


def test_a_worker_that_is_gone_is_no_longer_paused(clock):
    """A worker that was killed in an outage was shown as paused until the app ended."""
    progress = Progress(clock=clock)
    paused = ("lanes.outage", {"consumer": "orders", "state": "paused"}, 1.0)
    for worker in (0, 1):
        progress.add({"counts": [(SETTLED, {"consumer": "orders"}, 1.0), paused]}, worker)
    progress.forget(0)
    assert progress.facts()["orders"]["paused"]
    progress.forget(1)
    assert not progress.facts()["orders"]["paused"]


def test_durations_and_gauges_of_workers_reach_the_observer(clock):
    class Watching(Observer):
        def duration(self, name, seconds, times=1, **labels):
            seen.append((name, seconds, times, labels))

        def gauges(self, source, values):
            seen.append((source, *values))

    seen = []
    progress = Progress(Watching(), clock)
    worker = ReportBuffer()
    worker.duration("lanes.call.duration", 0.02, 3, consumer="orders")
    gauge = ["lanes.records.waiting", {"consumer": "orders"}, 4]
    progress.add({"counts": json.loads(json.dumps(worker.take())), "gauges": [gauge]}, 7)
    progress.forget(7)
    of_orders = {"consumer": "orders"}
    assert seen[0] == ("lanes.call.duration", pytest.approx(0.02), 3, of_orders)
    assert seen[1:] == [("7", Gauge("lanes.records.waiting", of_orders, 4)), ("7",)]


def test_a_worker_collects_and_its_driver_logs_once(clock, lines):
    workers, counts = [FailureCollector(clock), FailureCollector(clock)], Counts()
    for worker in workers:
        for _ in range(3):
            worker.note("orders", record(), failure())
    assert lines() == []
    progress = Progress(counts, clock)
    progress.begin(0.0)
    for worker in workers:
        progress.add({"counts": [(SETTLED, {"consumer": "orders"}, 5.0)], "failures": worker.take()})
        assert worker.take() == []
    progress.add({"counts": [], "failures": [{"kind": "junk"}, 7]})
    progress.log_progress(10.0)
    first, summary = lines()
    assert "Traceback" in first
    assert "settled 10 (1/s), failed 6" in summary
    assert counts.total(SETTLED) == 10
    assert progress.facts()["orders"]["failed"] == 6
    assert progress.facts()["orders"]["errors"][0]["message"] == "no stock"
