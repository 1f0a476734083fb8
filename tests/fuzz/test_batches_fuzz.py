"""A small share of the fuzz run over record batches, plain and with bounds checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("batches_worker.py")


def run_worker(count: int, **environment: str) -> str:
    ended = subprocess.run(
        [sys.executable, str(WORKER), "--count", str(count), "--seed", "20"],
        env=dict(os.environ) | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


@pytest.mark.fuzz
def test_mutated_batches_are_read_as_others_read_them_or_refused():
    told = run_worker(600)
    for outcome in ("equal", "refused: CorruptBatch", "part read, then CorruptBatch", "UnsupportedBatch"):
        assert outcome in told


@pytest.mark.fuzz
def test_no_read_outside_of_a_buffer(pytestconfig):
    # A numba cache of its own, for numba's does not know of the switch; kept between runs, for compiling takes long.
    place = pytestconfig.cache.mkdir("kernels-with-bounds-checks")
    run_worker(300, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(place))
