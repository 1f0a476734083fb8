"""The comparison of Spark's data sources: what its bars are made of."""

from __future__ import annotations

import pytest
from bench.report import Report
from bench.spark import ARROW, CONNECTOR, LANES, NOOP, OURS, RATE, RIVAL, SCENARIOS, SINK, add_bars, add_rows


def report_of(**rates: tuple[float, float]) -> Report:
    report = Report("spark", {})
    add_rows(report, {(s, system): [rates[s][n]] * 3 for s in rates for n, system in enumerate((OURS, RIVAL))})
    return report


def test_bars_are_ratios_of_medians():
    report = report_of(**{NOOP: (340.0, 200.0), ARROW: (300.0, 100.0), SINK: (99.0, 100.0)})
    add_rows(report, {(LANES, OURS): [250.0]})
    add_bars(report, SCENARIOS)
    assert [(bar.name, bar.value, bar.holds) for bar in report.bars] == [
        ("source-noop/connector", pytest.approx(1.7), True),
        ("source-lanes/connector-mapinarrow", pytest.approx(2.5), True),
        ("sink/connector", pytest.approx(0.99), False),
    ]
    assert report.find(OURS, ARROW, "over_connector") == pytest.approx(3.0)
    assert report.exit_code == 1


def test_rows_are_medians_with_their_spread():
    report = Report("spark", {})
    add_rows(report, {(NOOP, OURS): [3.0, 1.0, 2.0]})
    assert [report.find(OURS, NOOP, metric) for metric in (RATE, "slowest", "fastest")] == [2.0, 1.0, 3.0]


def test_every_jar_of_the_connector_has_its_sum():
    names = [line.split()[1] for line in CONNECTOR.sums.read_text().splitlines()]
    assert sorted(names) == sorted(f"{d.name}-{d.rev}.jar" for d in CONNECTOR.dependencies)
