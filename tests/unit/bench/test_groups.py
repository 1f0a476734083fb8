"""What `bench.groups` does without a broker: what it reads from /proc and from its children, and which bars it sets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from bench.group import process
from bench.group.crowd import Crowded, crowded_of
from bench.group.figures import (
    ONE_TOPIC,
    OWN_TOPICS,
    REBALANCE,
    SCENARIOS,
    STARTUP,
    THOUSAND,
    add_bars,
    add_rows,
    tables,
)
from bench.group.gateway import partitions_in
from bench.group.pauses import Pauses
from bench.group.rebalance import Reading, phase_of
from bench.group.startup import Startup, startup_of
from bench.group.systems import AIOKAFKA, JAVA, JAVA_CLASSIC, OURS, OURS_CLASSIC, SYSTEMS, Seat, properties
from bench.groups import DELIVERED_RATE, GROUPS, MANY, GroupBench, main, parse_options, plan_of, setting_of
from bench.java import JavaProgram
from bench.report import Report

TABLE = """\
   0: 0100007F:A1B2 0100007F:2384 01 00000000:00000000 00:00000000 00000000     0        0 111 1 0000000000000000
   1: 0100007F:A1B3 0100007F:2384 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0000000000000000
   2: 0100007F:A1B4 0100007F:2385 01 00000000:00000000 00:00000000 00000000     0        0 333 1 0000000000000000
   3: 0100007F:A1B5 0100007F:2384 06 00000000:00000000 00:00000000 00000000     0        0 111 1 0000000000000000
"""
CROWDED = Crowded(5, 1, 3, 50e6, 120e6, 0.25, 0.5, 20_000.0)
STARTED = Startup(1.0, 0.1, 1.2, 0.2, 2.0)
PAUSED = Pauses(0.03, 3.0, 0.03, 2.0, 0.02)


# --- what a process uses ---------------------------------------------------------------------------------------------


def test_established_connections_of_our_own_are_counted_by_remote_port():
    assert process.established(TABLE.splitlines(), {"111", "333"}) == {9092: 1, 9093: 1}


def test_connections_of_this_process_are_found_and_gone_when_closed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        before = process.connections([port])
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            during = process.connections([port, 1])
    assert before == {port: 0}
    assert during == {port: 2, 1: 0}


def test_threads_of_a_process_are_counted():
    """Of one that does nothing else: in this one threads of other tests may come and go."""
    code = """
import threading
from bench.group import process
release = threading.Event()
before = process.thread_count()
thread = threading.Thread(target=release.wait)
thread.start()
during = process.thread_count()
release.set()
thread.join()
print(during - before)
"""
    root = Path(process.__file__).parents[2]
    told = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert told.stdout == "1\n"


def test_memory_of_this_process_is_read():
    assert process.resident_bytes() == pytest.approx(process.resident_bytes(os.getpid()), rel=0.1)
    assert process.resident_of("Name:\tx\nVmRSS:\t    2048 kB\n") == 2_097_152


# --- what children tell ----------------------------------------------------------------------------------------------


def test_a_start_is_counted_from_each_of_its_beginnings():
    told = {
        "began": 10.0,
        "cold": {"created": 11.0, "subscribed": 11.5, "first": 13.0},
        "warm": {"created": 13.0, "subscribed": 13.25, "first": 13.5},
    }
    assert startup_of(told) == Startup(1.5, 0.25, 2.0, 0.5, 3.0)


def test_a_crowd_is_counted_while_quiet_and_its_cpu_in_both():
    counted = {"threads": 4, "network_threads": 1, "connections": 2, "resident_bytes": 900, "records": 0}
    idle = {**counted, "seconds": 20.0, "cpu_seconds": 1.0, "imported": 100, "alone": 700}
    load = {**counted, "threads": 9, "resident_bytes": 5_000, "seconds": 10.0, "cpu_seconds": 4.0, "records": 1_000}
    assert crowded_of(idle, load) == Crowded(4, 1, 2, 800, 200, 0.05, 0.4, 100.0)
    assert crowded_of(idle, None).load_cpu is None


def test_what_was_said_before_the_member_left_does_not_count():
    reading = Reading(2, after=5.0)
    told = [
        {"event": "reads", "since": 4.9, "partitions": [0, 1]},
        {"event": "assigned", "at": 5.5},
        {"event": "reads", "since": 5.1, "partitions": [1]},
        {"event": "reads", "since": 5.4, "partitions": [0]},
    ]
    assert [reading(event) for event in told] == [False, False, False, True]


def test_sets_of_partitions_are_read_as_java_writes_them():
    assert partitions_in("[a-topic-0, a-topic-11]") == {0, 11}
    assert partitions_in("[]") == frozenset()


# --- the plan --------------------------------------------------------------------------------------------------------


def test_the_whole_plan_measures_everything():
    plan = plan_of(parse_options([]))
    assert plan.scenarios == SCENARIOS
    assert plan.is_whole
    assert set(SYSTEMS.values()) == {system for scenario in SCENARIOS for system in scenario.systems}


def test_chosen_systems_scenarios_and_rounds_are_a_partial_plan():
    arguments = ["--scenario", STARTUP, REBALANCE, "--system", "aiokafka-classic", "--rounds", "7"]
    plan = plan_of(parse_options(arguments))
    assert [(s.name, s.systems, s.rounds) for s in plan.scenarios] == [
        (STARTUP, (AIOKAFKA,), 7),
        (REBALANCE, (AIOKAFKA,), 7),
    ]
    assert not plan.is_whole


def test_nothing_to_measure_is_refused_before_a_broker_is_started():
    with pytest.raises(SystemExit, match="none of the chosen systems"):
        main(["--scenario", THOUSAND, "--system", "aiokafka-classic"])


def environment(topics, quick=False):
    return GroupBench("h:1,h:2,h:3", tuple(f"t-{n}" for n in range(topics)), 3, JavaProgram(None, ""), quick)


def test_twenty_thousand_records_a_second_are_delivered_in_total():
    own, one = setting_of(OWN_TOPICS, environment(GROUPS)), setting_of(ONE_TOPIC, environment(1))
    assert (own.consumers, one.consumers) == (31, 31)
    assert own.written_rate == DELIVERED_RATE
    assert one.written_rate * GROUPS == pytest.approx(DELIVERED_RATE)
    orders = [setting.order(OURS, "h:1,h:2,h:3") for setting in (own, one)]
    assert [len({order.seat(n).topic for n in range(GROUPS)}) for order in orders] == [GROUPS, 1]
    assert all(len({order.seat(n).group for n in range(GROUPS)}) == GROUPS for order in orders)
    assert orders[0].ports == [1, 2, 3]


def test_a_thousand_are_idle():
    setting = setting_of(THOUSAND, environment(1))
    assert (setting.consumers, setting.load_seconds) == (MANY, 0.0)
    assert setting_of(THOUSAND, environment(1, quick=True)).consumers == 50


@pytest.mark.parametrize("period", [1.0, 0.75])
def test_phases_cover_the_time_between_heartbeats_evenly(period):
    """Also of a client that sends them after three quarters of the interval."""
    within = sorted((1 + phase_of(turn, 5)) % period for turn in range(5))
    assert np.diff(within) == pytest.approx([period / 5] * 4)


def test_members_are_cooperative_only_where_that_is_asked_for_and_the_protocol_has_it():
    seat = Seat("b:1", "g", "t", cooperative=True)
    key = "partition.assignment.strategy"
    assert properties(OURS_CLASSIC, seat)[key] == "cooperative-sticky"
    assert properties(JAVA_CLASSIC, seat)[key].endswith(".CooperativeStickyAssignor")
    assert key not in properties(OURS, seat)
    assert key not in properties(JAVA_CLASSIC, Seat("b:1", "g", "t"))
    assert properties(JAVA, seat)["group.protocol"] == "consumer"


# --- rows and bars ---------------------------------------------------------------------------------------------------


def full_report(**changes):
    kinds = {OWN_TOPICS: CROWDED, ONE_TOPIC: CROWDED, THOUSAND: CROWDED, STARTUP: STARTED, REBALANCE: PAUSED}
    found = {(s.name, system.name): [kinds[s.name]] for s in SCENARIOS for system in s.systems}
    for place_, figures in changes.get("instead", {}).items():
        found[place_] = [figures]
    report = Report("groups", {})
    add_rows(report, found)
    add_bars(report)
    return report


def test_figures_at_the_limits_hold():
    report = full_report()
    assert report.exit_code == 0
    # two crowds of two systems, two figures of the thousand, six pairs under each protocol
    assert len(report.bars) == 2 * 2 * 2 + 2 + 2 * 6


@pytest.mark.parametrize(
    ("scenario", "system", "figures", "bar"),
    [
        (OWN_TOPICS, OURS, Crowded(5, 2, 3, 1, 1, 0.1), "network_threads:ours-consumer:31-groups-own-topics"),
        (ONE_TOPIC, OURS_CLASSIC, Crowded(5, 1, 4, 1, 1, 0.1), "connections:ours-classic:31-groups-one-topic"),
        (THOUSAND, OURS, Crowded(5, 1, 3, 1, 121e6, 0.1), "above_one:ours-consumer:1000-idle"),
        (THOUSAND, OURS, Crowded(5, 1, 3, 1, 1, 0.26), "idle_cpu:ours-consumer:1000-idle"),
        (STARTUP, OURS, Startup(1.1, 0.1, 1, 1, 1), "cold:ours-consumer/java-consumer"),
        (STARTUP, JAVA_CLASSIC, Startup(1.0, 0.09, 1, 1, 1), "warm:ours-classic/java-classic"),
        (REBALANCE, OURS_CLASSIC, Pauses(0.031, 3, 0.03, 2, 0.02), "kept_at_join:ours-classic/java-classic"),
        (REBALANCE, OURS, Pauses(0.03, 3.1, 0.03, 2, 0.02), "moved_at_join:ours-consumer/java-consumer"),
        (REBALANCE, JAVA, Pauses(0.03, 3, 0.02, 2, 0.02), "kept_at_leave:ours-consumer/java-consumer"),
        (REBALANCE, JAVA, Pauses(0.03, 3, 0.03, 1.9, 0.02), "moved_at_leave:ours-consumer/java-consumer"),
    ],
)
def test_each_figure_falls_short_alone(scenario, system, figures, bar):
    report = full_report(instead={(scenario, system.name): figures})
    assert [found.name for found in report.bars if not found.holds] == [bar]
    assert report.exit_code == 1


def test_no_bar_counts_on_the_other_clients():
    slow = {(STARTUP, AIOKAFKA.name): Startup(9, 9, 9, 9, 9), (OWN_TOPICS, AIOKAFKA.name): Crowded(9, 0, 99, 1, 1, 9)}
    assert full_report(instead=slow).exit_code == 0


def test_the_median_counts_and_the_spread_is_reported():
    report = Report("groups", {})
    rounds = [Pauses(0.01, moved, 0.01, 1.0, 0.02) for moved in (4.0, 0.5, 2.0)]
    add_rows(report, {(REBALANCE, "ours-consumer"): rounds})
    told = [report.find("ours-consumer", REBALANCE, f"moved_at_join{end}") for end in ("", "_least", "_most")]
    assert told == [2_000.0, 500.0, 4_000.0]


def test_each_kind_of_scenario_has_its_own_table(tmp_path):
    report = full_report()
    text = tables(report)
    assert len(text.split("\n\n")) == 3
    assert "moved_at_join [ms]" in text.split("\n\n")[2]
    assert "_least" not in text
    assert len(json.loads(report.write(tmp_path).read_text())["rows"]) == len(report.rows)
