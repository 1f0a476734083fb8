"""The whole harness once, small: a broker, a topic, a process per client, the results file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CHOSEN = ["columns", "records", "confluent"]


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.long
def test_a_quick_run_measures_what_was_chosen(tmp_path):
    options = ["--quick", "--scenario", "100b-lz4", "--system", *CHOSEN, "--results", str(tmp_path)]
    command = [sys.executable, ROOT / "bench" / "consume.py", *options]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=170, cwd=tmp_path)
    assert told.returncode == 0, told.stdout + told.stderr
    written = json.loads((tmp_path / "consume-partial.json").read_text())
    rates = {row["system"]: row["value"] for row in written["rows"] if row["metric"] == "rate"}
    assert set(rates) == set(CHOSEN)
    assert min(rates.values()) > 0
    assert written["bars"] == []
    assert written["machine"]["java"]
    assert written["machine"]["load_after"]
