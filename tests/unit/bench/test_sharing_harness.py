"""The whole of `bench.sharing`, small: a broker, a child of each kind, the results file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.cluster
@pytest.mark.long  # what is measured is tested without a broker, too
@pytest.mark.slow
def test_a_small_run_measures_every_system(tmp_path):
    command = [sys.executable, ROOT / "bench" / "sharing.py", "--quick", "--results", tmp_path]
    command += ["--scenario", "resources", "single"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "sharing-partial.json").read_text())["rows"]
    found = {(row["scenario"], row["system"], row["metric"]): row["value"] for row in rows}
    for system in ("shared", "separate", "confluent-poll", "confluent-consume", "aiokafka"):
        assert found["single", system, "rate"] > 0
        assert found["resources", system, "load_rate"] > 0
    assert found["resources", "shared", "network_threads"] == 1
    assert found["resources", "shared", "connections"] <= 3
