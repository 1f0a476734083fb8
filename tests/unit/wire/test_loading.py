"""Kernels load late, once, from a cache, and a fork in the middle harms nobody."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

from multilane.wire.records import image, loading


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
for heavy in ("numba", "llvmlite", "pyarrow"):
    assert heavy not in sys.modules, heavy
decode.load_kernels()
"""
    run_python(code)


READ_ONE = """
import sys
import numpy as np
from multilane.wire.records.decode import load_kernels
from multilane.wire.records.batches import scan
load_kernels()
assert scan(np.zeros(0, np.uint8), 0, 0, 5).next_offset == 5
print("numba" in sys.modules)
"""


@pytest.mark.slow
def test_compiled_once_and_then_loaded_without_the_compiler(tmp_path):
    places = {"MULTILANE_CACHE": str(tmp_path)}
    assert run_python(READ_ONE, **places).strip() == "True"
    assert run_python(READ_ONE, **places).strip() == "False"
    (kept,) = (tmp_path / "kernels").iterdir()
    assert kept.stat().st_mode & 0o077 == 0


@pytest.fixture
def kept_kernels(tmp_path):
    """A cache of one's own, with this machine's kernels in it; compiled for it where the machine keeps none."""
    place = loading._place(image.processor())
    kept = loading._kept(place) or importlib.import_module("multilane.wire.records.compiling").compile_kernels()
    own = tmp_path / "kernels" / place.name
    loading._keep(own, kept.pack())
    return own


def test_kept_kernels_are_used(kept_kernels):
    assert run_python(READ_ONE, MULTILANE_CACHE=str(kept_kernels.parents[1])).strip() == "False"


@pytest.mark.parametrize("damage", [b"", b"x", b"multilane kernels 1\n"])
def test_damaged_kernels_are_not_used(kept_kernels, damage, caplog):
    kept_kernels.write_bytes(damage or kept_kernels.read_bytes()[:-1])
    assert loading._kept(kept_kernels) is None
    assert "made anew" in caplog.text


def test_kernels_that_others_may_write_are_not_used(kept_kernels, caplog):
    kept_kernels.chmod(0o666)
    assert loading._kept(kept_kernels) is None
    assert "can be written by others" in caplog.text


def test_without_a_place_to_keep_them_there_is_a_word_about_it(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    loading._keep(blocked / "kernels" / "x.image", b"code")
    assert "each process compiles them" in caplog.text


def test_another_processor_or_compiler_has_kernels_of_its_own(monkeypatch):
    here = loading._place("this one")
    assert here == loading._place("this one")
    assert here != loading._place("another one")
    monkeypatch.setattr(loading, "version", lambda package: f"{package} 99")
    assert here != loading._place("this one")


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
    if name == "multilane.wire.records.compiling":
        entered.set()
        assert release.wait(60)
    return real(name, package)

loading.importlib.import_module = slow
loading._kept = lambda place: None  # so that it compiles
loading._keep = lambda place, data: None
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
