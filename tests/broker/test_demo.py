"""`multilane demo` as a person runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.broker

_PATIENCE = 380.0  # less than a minute by itself; beside the other tests on a slow machine, three


@pytest.mark.slow
def test_the_demo_runs_without_a_terminal():
    done = subprocess.run(
        [Path(sys.executable).with_name("multilane"), "demo", "--orders", "4000", "--partitions", "2"],
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Proved: " in done.stdout
    assert "NOT PROVED" not in done.stdout
    assert "orders read by the app: 4,000" in done.stdout
    assert "With one worker per partition (2)" in done.stdout
    assert "(computed, not measured: 4,000 calls of 20 ms / 2)" in done.stdout
    assert "No order was lost" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
