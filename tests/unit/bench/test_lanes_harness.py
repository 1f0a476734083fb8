"""The whole harness of `bench.lanes`, small: a broker, a log, children of each kind, the results file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(directory, *options):
    command = [sys.executable, ROOT / "bench" / "lanes.py", "--quick", "--results", directory, *options]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170, cwd=directory)
    assert told.returncode == 0, told.stdout + told.stderr
    written = json.loads((directory / "lanes-partial.json").read_text())
    assert written["bars"] == []
    return {(row["scenario"], row["system"], row["metric"]): row["value"] for row in written["rows"]}


@pytest.mark.broker
@pytest.mark.long
def test_a_steady_state_and_a_drain_are_measured(tmp_path):
    rows = run(tmp_path, "--scenario", "http-15x20", "zipf-15x20", "--seconds", "1")
    for system in ("ours", "parallel-consumer", "bare-loop"):
        assert 0 < rows["http-15x20", system, "rate"] < rows["http-15x20", "limit", "rate"] * 1.05
        assert rows["http-15x20", system, "seconds"] >= 1
        assert rows["http-15x20", system, "cpu"] > 0
        assert rows["http-15x20", system, "peak_rss"] > 10
    for system in ("ours", "parallel-consumer"):
        assert 0 < rows["zipf-15x20", system, "of_limit"] <= 100
        assert rows["http-15x20", system, "of_bare"] > 0
