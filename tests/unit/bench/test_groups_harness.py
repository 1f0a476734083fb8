"""The whole harness once, small: three brokers, children of each kind, the results file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.cluster
@pytest.mark.slow
def test_a_quick_run_measures_what_was_chosen(tmp_path):
    scenarios = ["--scenario", "31-groups-one-topic", "first-record", "rebalance"]
    systems = ["--system", "ours-classic", "java-classic"]
    command = [sys.executable, ROOT / "bench" / "groups.py", "--quick", *scenarios, *systems, "--results", tmp_path]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170, cwd=tmp_path)
    assert told.returncode == 0, told.stdout + told.stderr
    written = json.loads((tmp_path / "groups-partial.json").read_text())
    rows = {(row["scenario"], row["system"], row["metric"]): row["value"] for row in written["rows"]}
    for system in ("ours-classic", "java-classic"):
        assert 0 < rows["first-record", system, "warm"] < rows["first-record", system, "from_process_start"]
        assert 0 < rows["rebalance", system, "kept_at_join"] < rows["rebalance", system, "moved_at_join"]
    assert rows["31-groups-one-topic", "ours-classic", "network_threads"] == 1
    assert rows["31-groups-one-topic", "ours-classic", "load_rate"] > 0
    assert written["bars"] == []
    assert written["notes"]["broker_properties"]["group.initial.rebalance.delay.ms"] == "0"
