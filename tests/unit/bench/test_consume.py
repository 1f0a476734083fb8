"""What `bench.consume` does without a broker: what it reads from the tools, what it refuses, which bars it sets."""

from __future__ import annotations

import pytest
from bench import java
from bench.consume import Outcome, Plan, add_rows, check_agreement, outcome_of, parse_options, plan_of, rotated
from bench.report import Report
from bench.scenarios import JAVA, JAVA_AS_IT_COMES, RIVALS, SCENARIOS, SYSTEMS, add_bars, source_of
from bench.topics import PARTITIONS, Filling, make_records

STATS = """\
[warning] something of the JVM, with, commas
2026-11-15 05:05:24:500, 0, 0.0001, 0.0000, 1, 0.4027, 2877, -394, 0.0000, 0.0000
2026-11-15 05:05:59:900, 0, 3.9482, 19.5449, 600, 183168.3168, 0, 202, 19.5449, 183168.3168
2026-11-15 05:06:00:150, 0, 7.7361, 18.5682, 900, 174019.6078, 0, 204, 18.5682, 174019.6078
"""


def told_of(filling, **changes):
    each = filling.per_partition
    told = {"records": filling.records, "offset_sum": PARTITIONS * each * (each - 1) // 2, "content_bytes": 4_480}
    return {**told, "seconds": 2.0, "cpu_seconds": 1.0, "peak_rss_bytes": 1_000_000, **changes}


def test_lines_of_the_java_tool_are_read_and_others_ignored():
    samples = java.parse(STATS)
    assert [sample.records for sample in samples] == [1, 600, 900]
    assert samples[2].at - samples[1].at == pytest.approx(0.25)


def test_java_counts_from_half_of_the_records_on():
    assert java.second_half_rate(java.parse(STATS), 1_000) == pytest.approx(300 / 0.25)


def test_too_few_samples_give_no_rate():
    with pytest.raises(ValueError, match="not enough"):
        java.second_half_rate(java.parse(STATS)[:2], 1_000)


def test_the_java_tool_is_given_everything(tmp_path):
    program = java.JavaProgram(tmp_path / "java", "jars/*")
    told = java.command(program, source_of("java-consumer", "b:1", "t"), 7, "consumer", tmp_path / "log")
    assert {"--topic=t", "--num-records=7", "--show-detailed-stats"} <= set(told)
    assert "--command-property=group.protocol=consumer" in told


def test_a_whole_pass_becomes_an_outcome():
    outcome = outcome_of(told_of(Filling(100, "none", 40)), Filling(100, "none", 40))
    assert outcome == Outcome(20.0, 25_000.0, 1_000_000, 112.0)


@pytest.mark.parametrize("changes", [{"records": 39}, {"offset_sum": 1}])
def test_a_pass_that_missed_something_is_refused(changes):
    filling = Filling(100, "none", 40)
    with pytest.raises(RuntimeError, match="offsets add up"):
        outcome_of(told_of(filling, **changes), filling)


def test_clients_that_read_different_bytes_are_refused():
    plan = Plan(SCENARIOS[:1], ("confluent", "aiokafka"), 1)
    name = SCENARIOS[0].name
    outcomes = {(name, "confluent"): [Outcome(1.0, 1.0, 1, 112.0)], (name, "aiokafka"): [Outcome(1.0, 1.0, 1, 112.5)]}
    with pytest.raises(RuntimeError, match="different numbers of bytes"):
        check_agreement(outcomes, plan)
    outcomes[name, "aiokafka"] = [Outcome(1.0, 1.0, 1, 112.0)]
    check_agreement(outcomes, plan)


def full_report(rates):
    report = Report("consume", {})
    outcomes = {(s.name, system): [Outcome(rates[system], 1.0, 1, None)] for s in SCENARIOS for system in SYSTEMS}
    add_rows(report, outcomes)
    add_bars(report, SCENARIOS)
    return report


def rates_at_the_limits():
    rates = dict.fromkeys((*JAVA, *RIVALS), 1.0)
    return {**rates, "columns": 5.0, "arrow": 5.0, "records": 1.3, "columns-busy": 1.0}


def test_every_scenario_carries_its_bars():
    report = full_report(rates_at_the_limits())
    counts = [sum(bar.name.endswith(f":{s.name}") for bar in report.bars) for s in SCENARIOS]
    assert counts == [4 if s.value_bytes < 1_000 else 2 for s in SCENARIOS]
    assert report.exit_code == 0


def test_the_tuned_java_is_reported_but_no_bar_counts_on_it():
    rates = {**rates_at_the_limits(), "java-classic-tuned": 10.0}
    report = full_report(rates)
    assert report.exit_code == 0
    assert report.find("columns", SCENARIOS[0].name, "over_tuned_java") == 0.5


@pytest.mark.parametrize("system", ["columns", "records", "columns-busy"])
def test_being_slower_falls_short(system):
    rates = rates_at_the_limits()
    rates[system] *= 0.99
    assert full_report(rates).exit_code == 1


@pytest.mark.parametrize("system", [*JAVA_AS_IT_COMES, *RIVALS])
def test_the_best_of_the_others_counts(system):
    rates = rates_at_the_limits()
    rates[system] *= 6
    assert full_report(rates).exit_code == 1


def test_the_median_of_the_rounds_counts():
    report = Report("consume", {})
    add_rows(report, {("s", "columns"): [Outcome(rate, 1.0, 1, None) for rate in (1.0, 9.0, 4.0)]})
    assert [report.find("columns", "s", metric) for metric in ("slowest", "rate", "fastest")] == [1.0, 4.0, 9.0]


def test_each_system_begins_as_often_as_any_other():
    systems = ("a", "b", "c", "d")
    orders = [rotated(systems, turn, 4) for turn in range(4)]
    assert {order[0] for order in orders} == set(systems)
    assert all(sorted(order) == sorted(systems) for order in orders)
    assert rotated(systems, 0, 3) == systems


def test_a_quick_plan_is_small_and_leaves_java_out():
    plan = plan_of(parse_options(["--quick", "--scenario", "100b-lz4"]))
    assert [s.name for s in plan.scenarios] == ["100b-lz4"]
    assert not set(JAVA) & set(plan.systems)
    assert [f.records for f in plan.fillings()] == [40_000]
    assert plan.rounds == 1


def test_the_whole_plan_measures_everything():
    plan = plan_of(parse_options([]))
    assert plan.scenarios == SCENARIOS
    assert plan.systems == SYSTEMS
    sizes = {f.records for f in plan.fillings() if f.value_bytes == 100}
    assert sizes == {10_000_000, 2_000_000}
    assert all(f.records % PARTITIONS == 0 for f in plan.fillings())


def test_records_have_the_sizes_they_promise():
    made = make_records(100, 500)
    assert made == make_records(100, 500)
    assert all(8 <= len(key) <= 12 and len(value) == 100 for key, value in made)
    assert len({value for _, value in made}) == 500
