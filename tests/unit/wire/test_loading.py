"""Kernels load late, once, from a cache, and a fork in the middle harms nobody."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import multilane

PACKAGE = Path(multilane.__file__).parent


def run_python(code: str, **environment: str) -> str:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout


def test_importing_brings_no_compiler():
    code = """
import sys, multilane
from multilane.wire.records import batches, block, record, decode, transactions
assert "numba" not in sys.modules, "numba"
assert "pyarrow" not in sys.modules, "pyarrow"
decode.load_kernels()
assert "numba" in sys.modules
"""
    run_python(code)


READ_ONE = """
import numpy as np
from multilane.wire.records.decode import load_kernels
from multilane.wire.records.batches import scan
from multilane.wire.records import kernels
load_kernels()
stats = [getattr(kernels, name).stats for name in
         ("scan_headers", "decode_batches", "mark_nulls", "gather_headers")]
print(sum(sum(s.cache_hits.values()) for s in stats), sum(sum(s.cache_misses.values()) for s in stats))
assert scan(np.zeros(0, np.uint8), 0, 0, 5).next_offset == 5
"""


@pytest.mark.slow
def test_compiled_once_and_then_loaded_from_the_cache(tmp_path):
    assert run_python(READ_ONE, NUMBA_CACHE_DIR=str(tmp_path)).split() == ["0", "4"]
    assert run_python(READ_ONE, NUMBA_CACHE_DIR=str(tmp_path)).split() == ["4", "0"]


@pytest.mark.slow
def test_a_package_directory_that_cannot_be_written(tmp_path):
    """numba falls back to the user's cache directory. A file in the place of __pycache__ stops even root."""
    copy = tmp_path / "site" / "multilane"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "wire" / "records" / "__pycache__").write_text("not a directory")
    places = {
        "PYTHONPATH": str(tmp_path / "site"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    assert run_python(READ_ONE, **places).split() == ["0", "4"]
    assert run_python(READ_ONE, **places).split() == ["4", "0"]
    assert list((tmp_path / "cache").rglob("*.nbi"))


def test_a_fork_while_kernels_load_waits_for_them():
    """The child of a fork in the middle of loading can load and read; without the fork handlers it would hang."""
    code = """
import importlib, os, sys, threading
import numpy as np
from multilane.wire.records import loading
from multilane.wire.records.batches import scan

entered, release = threading.Event(), threading.Event()
real = importlib.import_module

def slow(name, package=None):
    if name == "multilane.wire.records.kernels":
        entered.set()
        assert release.wait(60)
    return real(name, package)

loading.importlib.import_module = slow
loader = threading.Thread(target=loading.load_kernels)
loader.start()
assert entered.wait(60)
os.register_at_fork(before=release.set)  # handlers of later registration come first: loading goes on once we fork
child = os.fork()
if child == 0:
    loading.importlib.import_module = real
    os._exit(0 if loading._loaded and len(scan(np.zeros(0, np.uint8), 0, 0, 0)) == 0 else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
loader.join(60)
"""
    assert run_python(code) == ""


def test_a_fork_by_the_loading_thread_does_not_lock_itself_out():
    code = """
import os
from multilane.wire.records import loading
with loading._lock:
    child = os.fork()
    if child == 0:
        loading.load_kernels()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    run_python(code)


def test_many_threads_load_one_module():
    code = """
import threading
from multilane.wire.records import loading
found = []
threads = [threading.Thread(target=lambda: found.append(loading.kernels())) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(found) == 8 and len(set(map(id, found))) == 1
"""
    run_python(code)
