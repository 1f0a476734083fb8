"""The frame of the benchmarks: rows, bars, the table, the file."""

from __future__ import annotations

import json
import re

import pytest
from bench.report import Bar, Report, conclude, cpu_model, installed_version, machine_facts


@pytest.fixture
def report():
    made = Report("demo", {"cores": 2})
    made.add("ours", "small", "rate", 3_000_000.0, "records/s")
    made.add("theirs", "small", "rate", 1_000_000.0, "records/s")
    made.add("ours", "small", "cpu", 0.125, "us/record")
    return made


@pytest.mark.parametrize(
    ("value", "limit", "at_most", "holds"),
    [(3.0, 3.0, False, True), (2.99, 3.0, False, False), (3.0, 3.0, True, True), (3.01, 3.0, True, False)],
)
def test_a_bar_holds_at_its_limit_and_not_beyond(value, limit, at_most, holds):
    assert Bar("b", value, limit, at_most).holds is holds


def test_a_bar_is_printed_in_the_fixed_form():
    assert str(Bar("columns/java:100b-none", 3.456, 3.0)) == "bar: columns/java:100b-none 3.46 3.00 holds"
    assert str(Bar("x", 1.0, 3.0)) == "bar: x 1.00 3.00 falls short"


def test_a_value_just_below_the_limit_never_looks_like_the_limit_and_holds():
    assert str(Bar("x", 2.999, 3.0)).endswith("falls short")


def test_rows_are_found_by_system_scenario_and_metric(report):
    assert report.find("ours", "small", "rate") == 3_000_000.0
    assert report.find("ours", "large", "rate") is None


def test_the_same_figure_twice_is_refused(report):
    with pytest.raises(ValueError, match="already added"):
        report.add("ours", "small", "rate", 1.0, "records/s")


def test_the_best_of_systems_needs_all_of_them(report):
    assert report.best(("ours", "theirs"), "small", "rate") == 3_000_000.0
    assert report.best(("ours", "absent"), "small", "rate") is None
    assert report.best((), "small", "rate") is None


def test_a_ratio_is_a_bar_only_when_both_sides_were_measured(report):
    report.bar_ratio("there", report.find("ours", "small", "rate"), report.find("theirs", "small", "rate"), 2.0)
    report.bar_ratio("not-there", report.find("ours", "small", "rate"), None, 2.0)
    assert [(bar.name, bar.value) for bar in report.bars] == [("there", 3.0)]


@pytest.mark.parametrize(("limit", "code"), [(3.0, 0), (3.1, 1)])
def test_the_exit_code_tells_whether_every_bar_holds(report, limit, code):
    report.bar_ratio("one", 3.0, 1.0, limit)
    report.bar_ratio("two", 10.0, 1.0, 1.0)
    assert report.exit_code == code


def test_conclude_prints_and_writes_the_same(report, tmp_path, capsys):
    report.bar_ratio("ratio", 1.0, 2.0, 1.0)
    assert conclude(report, ("rate", "cpu"), tmp_path / "new") == 1
    printed = capsys.readouterr().out
    assert re.search(r"^small +ours +3,000,000 +0\.12$", printed, re.MULTILINE)
    assert re.search(r"^small +theirs +1,000,000 +-$", printed, re.MULTILINE)
    assert "bar: ratio 0.50 1.00 falls short" in printed
    written = json.loads((tmp_path / "new" / "demo.json").read_text())
    assert written["machine"] == {"cores": 2}
    assert written["rows"][0] == {
        "system": "ours",
        "scenario": "small",
        "metric": "rate",
        "value": 3_000_000.0,
        "unit": "records/s",
    }
    assert written["bars"] == [{"name": "ratio", "value": 0.5, "limit": 1.0, "at_most": False, "holds": False}]


def test_machine_facts_name_what_a_reader_needs():
    facts = machine_facts(("pytest", "no-such-package"))
    assert facts["cores"] >= 1
    assert facts["memory_bytes"] > 1 << 20
    assert facts["cpu"]
    assert facts["kernel"]
    assert len(facts["load_before"]) == 3
    assert facts["packages"] == {"pytest": installed_version("pytest"), "no-such-package": None}
    assert json.dumps(facts)


def test_the_cpu_model_is_read_from_cpuinfo():
    assert cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n") == "Some CPU @ 3 GHz"
    assert cpu_model("")
