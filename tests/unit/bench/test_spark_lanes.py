"""`bench.spark_lanes`: what becomes of the figures, without a broker or Spark."""

from __future__ import annotations

import os
import subprocess
import sys

from bench.lane.figures import BARE, OF_BARE, OURS, RATE
from bench.lane.sampling import Figures, is_zombie, role_of, tree
from bench.lane.scenarios import COLUMNAR, SINGLE_20
from bench.report import Report
from bench.spark_lanes import BATCHES, CONTINUOUS, add_bars, add_rows, command_of, log_for

from multilane.java import find_java


def test_shares_bars_and_memory_by_role():
    report = Report("test", {})
    roles = {"driver": 100_000_000, "jvm": 400_000_000, "workers": 600_000_000}
    found = {
        (SINGLE_20.name, BARE): [Figures(14_800, 20, 0.1, 1)],
        (SINGLE_20.name, OURS): [Figures(14_600, 20, 0.2, 1)],
        (SINGLE_20.name, CONTINUOUS): [Figures(rate, 20, 0.5, 1, roles) for rate in (14_000, 14_500, 14_100)],
        (COLUMNAR.name, BARE): [Figures(370_000, 20, 0.1, 1)],
        (COLUMNAR.name, CONTINUOUS): [Figures(300_000, 20, 1.5, 1, roles)],
        (COLUMNAR.name, BATCHES): [Figures(300_000, 20, 1.5, 1, roles)],
    }
    add_rows(report, found)
    add_bars(report)
    assert report.find(CONTINUOUS, SINGLE_20.name, RATE) == 14_100
    assert round(report.find(CONTINUOUS, SINGLE_20.name, OF_BARE), 3) == 0.953
    assert report.find(CONTINUOUS, SINGLE_20.name, "jvm_rss") == 400
    assert report.find(OURS, SINGLE_20.name, "jvm_rss") is None
    assert {bar.name: bar.holds for bar in report.bars} == {
        f"{SINGLE_20.name}/{CONTINUOUS}/bare-loop": True,
        f"{COLUMNAR.name}/{CONTINUOUS}/bare-loop": False,
        f"{COLUMNAR.name}/{BATCHES}/bare-loop": True,
    }


def test_the_log_lasts_for_the_fastest():
    assert log_for([SINGLE_20, COLUMNAR], 20.0).records >= COLUMNAR.limit * 30


def test_every_system_is_a_module(tmp_path):
    from bench.lane.order import order_of

    order = order_of(SINGLE_20, log_for([SINGLE_20], 1.0), "localhost:9092", 0)
    for system in (BARE, OURS, CONTINUOUS, BATCHES):
        module = command_of(system, order)[2]
        assert __import__(module, fromlist=["run"]).__name__ == module


def test_a_process_and_those_below_it():
    own = os.getpid()
    assert next(iter(tree(own))) == own
    assert role_of(own, own) == "driver"
    assert role_of(own, 1) == "workers"
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as ended:
        ended.stdout.read()
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert is_zombie(ended.pid)
        assert ended.pid in tree(own)
    assert not is_zombie(own)
    assert find_java().program.name == "java", "which is how a JVM is told from workers"
