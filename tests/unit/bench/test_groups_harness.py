"""The whole harness, small: three brokers, children of each kind, the results file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SYSTEMS = ("ours-classic", "java-classic")


def run(directory, scenarios, systems):
    options = ["--quick", "--scenario", *scenarios, "--system", *systems, "--results", directory]
    command = [sys.executable, ROOT / "bench" / "groups.py", *options]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170, cwd=directory)
    assert told.returncode == 0, told.stdout + told.stderr
    written = json.loads((directory / "groups-partial.json").read_text())
    assert written["bars"] == []
    assert written["notes"]["broker_properties"]["group.initial.rebalance.delay.ms"] == "0"
    return {(row["scenario"], row["system"], row["metric"]): row["value"] for row in written["rows"]}


@pytest.mark.cluster
@pytest.mark.long  # what is measured is tested without a broker, too
@pytest.mark.slow
def test_crowds_and_first_records_are_measured(tmp_path):
    rows = run(tmp_path, ["31-groups-one-topic", "first-record"], SYSTEMS)
    for system in SYSTEMS:
        assert rows["first-record", system, "warm"] > 0
        assert 0 < rows["first-record", system, "cold"] < rows["first-record", system, "from_process_start"]
    assert rows["31-groups-one-topic", "ours-classic", "network_threads"] == 1
    assert rows["31-groups-one-topic", "ours-classic", "connections"] >= 1
    assert rows["31-groups-one-topic", "ours-classic", "load_rate"] > 0


@pytest.mark.cluster
@pytest.mark.long  # what is measured is tested without a broker, too
@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_pauses_are_measured(tmp_path, system):
    rows = run(tmp_path, ["rebalance"], [system])
    assert 0 < rows["rebalance", system, "kept_at_join"] < rows["rebalance", system, "moved_at_join"]
    assert rows["rebalance", system, "kept_at_leave"] > 0
    assert 0 < rows["rebalance", system, "steady"] < rows["rebalance", system, "moved_at_join"]
