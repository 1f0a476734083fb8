"""`bench.spark_latency`: pairs of times, percentiles, stretches and bars, without a broker or Spark."""

from __future__ import annotations

import numpy as np
import pytest
from bench.lane.figures import OURS
from bench.lane.sampling import Figures, Sample, Span, Window
from bench.latency.samples import Latencies, Notes, Stretch, Written, latencies, read_pairs, stamp_of, stamped
from bench.latency.watching import Measured
from bench.report import Report
from bench.spark_latency import (
    BATCHES,
    CONTINUOUS,
    P50,
    RIVAL,
    SCENARIO,
    SYSTEMS,
    add_bars,
    add_rows,
    order_for,
    summary,
)

MS = 1_000_000
ROLES = {"driver": 100_000_000, "jvm": 600_000_000}


def pairs(*rows):
    return np.array(rows, np.int64).reshape(-1, 2) * MS


def times(*values):
    return np.array(values, np.int64) * MS


def measured(p50, p99, handled=30_000):
    return Measured(Latencies(p50, p99, p99, 30_000, handled, 0), Figures(1_000, 30, 0.5, 1, ROLES))


def test_percentiles_are_of_what_was_sent_in_the_stretch():
    sent = times(*range(200))
    handled = pairs(*((n, n + 1 + n % 100) for n in range(200)))
    found = latencies(handled, sent, Stretch(100 * MS, 200 * MS), 1_000 * MS)
    assert (found.p50, found.p99, found.longest) == (50, 99, 100)
    assert (found.sent, found.missing) == (100, 0)


def test_what_ended_in_the_stretch_is_counted_whenever_it_was_sent():
    sent = times(*range(20))
    late = pairs(*((n, n + 15) for n in range(20)))
    found = latencies(late, sent, Stretch(0, 20 * MS), 100 * MS)
    assert (found.sent, found.handled, found.share) == (20, 5, 0.25)
    assert found.is_behind
    assert not latencies(late, sent, Stretch(15 * MS, 20 * MS), 100 * MS).is_behind


def test_of_two_ends_the_first_counts():
    found = latencies(pairs((1, 90), (1, 21), (2, 22)), times(1, 2), Stretch(0, 50 * MS), 100 * MS)
    assert (found.longest, found.handled) == (20, 2)


def test_what_has_not_ended_has_taken_until_now():
    found = latencies(pairs((1, 21)), times(1, 2), Stretch(0, 50 * MS), 102 * MS)
    assert (found.p50, found.p99, found.missing) == (20, 100, 1)


def test_a_stretch_without_records_tells_nothing():
    with pytest.raises(RuntimeError, match="nothing was sent"):
        latencies(pairs((1, 2)), times(1), Stretch(5 * MS, 6 * MS), 10 * MS)


def test_notes_are_read_as_they_were_written(tmp_path):
    notes = Notes(tmp_path)
    notes.add(1, 2)
    notes.write()
    notes.add(3, 4)
    notes.write()
    assert read_pairs(tmp_path).tolist() == [[1, 2], [3, 4]]
    assert Written(tmp_path).handled == 2


def test_half_a_pair_does_not_count(tmp_path):
    (tmp_path / "1").write_bytes(bytes(16 + 8))
    (tmp_path / "2").write_bytes(b"")
    assert read_pairs(tmp_path).tolist() == [[0, 0]]
    assert Written(tmp_path).handled == 1


def test_a_value_begins_with_its_time():
    value = stamped(1_794_800_000_123_456_789, 100)
    assert len(value) == 100
    assert stamp_of(value) == 1_794_800_000_123_456_789


def test_a_window_is_open_when_it_has_warmed_up():
    window = Window(Span(warm=1.0, seconds=1.0))
    seen = []
    for at, handled in ((0.0, 0), (1.0, 5), (1.5, 6), (2.0, 7), (3.0, 8)):
        over = window.add(Sample(at, handled, 0.0, {}, at))
        seen.append((window.is_open, over))
    assert seen == [(False, False), (False, False), (False, False), (True, False), (True, True)]


def test_bars_are_parts_of_what_the_connector_takes():
    report = Report("test", {})
    found = {
        OURS: measured(25, 40),
        CONTINUOUS: measured(30, 96),
        BATCHES: measured(40, 900),
        RIVAL: measured(300, 800),
    }
    add_rows(report, found)
    add_bars(report, found)
    assert {bar.name: (round(bar.value, 3), bar.holds) for bar in report.bars} == {
        "p50/spark-continuous/connector": (0.1, True),
        "p99/spark-continuous/connector": (0.12, False),
        "p50/spark-batches/connector": (0.133, True),
        "p99/spark-batches/connector": (1.125, False),
        "p99/spark-batches/spark-continuous": (9.375, False),
    }
    assert report.find(CONTINUOUS, SCENARIO, P50) == 30
    assert report.find(RIVAL, SCENARIO, "jvm_rss") == 600
    assert report.find(RIVAL, SCENARIO, "workers_rss") is None


def test_who_falls_behind_is_reported_and_holds_no_bar():
    report = Report("test", {})
    found = {RIVAL: measured(9_000, 15_000, handled=20_000)}
    add_bars(report, found)
    assert [(bar.name, bar.holds) for bar in report.bars] == [("handled/connector-foreachBatch/sent", False)]
    assert "falls behind" in summary(RIVAL, found[RIVAL])
    assert "falls behind" not in summary(OURS, measured(25, 40))


def test_a_run_of_ours_alone_has_no_bars():
    report = Report("test", {})
    found = {CONTINUOUS: measured(30, 40)}
    add_rows(report, found)
    add_bars(report, found)
    assert report.bars == []


def test_every_system_has_a_topic_and_a_group_of_its_own():
    orders = [order_for(system, "localhost:9092") for system in SYSTEMS]
    assert len({order.topic for order in orders}) == len({order.group for order in orders}) == len(SYSTEMS)
    assert {order.lanes_in_all for order in orders} == {300}
