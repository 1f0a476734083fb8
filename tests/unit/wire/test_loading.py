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
    place = loading._image_path(image.processor())
    kept = loading._stored(place) or importlib.import_module("multilane.wire.records.compiling").compile_kernels()
    own = tmp_path / "kernels" / place.name
    loading._store(own, kept.pack())
    return own


def test_kept_kernels_are_used(kept_kernels):
    assert run_python(READ_ONE, MULTILANE_CACHE=str(kept_kernels.parents[1])).strip() == "False"


@pytest.mark.parametrize("damage", [b"", b"x", b"multilane kernels 1\n"])
def test_damaged_kernels_are_not_used(kept_kernels, damage, caplog):
    kept_kernels.write_bytes(damage or kept_kernels.read_bytes()[:-1])
    assert loading._stored(kept_kernels) is None
    assert "compiled again" in caplog.text


def test_kernels_that_others_may_write_are_not_used(kept_kernels, caplog):
    kept_kernels.chmod(0o666)
    assert loading._stored(kept_kernels) is None
    assert "other users can write" in caplog.text


def test_kernels_in_a_directory_that_others_may_write_are_neither_used_nor_kept(kept_kernels, caplog):
    kept_kernels.parent.chmod(0o777)
    assert loading._stored(kept_kernels) is None
    assert "other users can write" in caplog.text
    another = kept_kernels.with_name("another.image")
    loading._store(another, b"code")
    assert "each process compiles them" in caplog.text
    assert not another.exists()


def test_kernels_of_another_user_are_not_used(kept_kernels, monkeypatch, caplog):
    mine = kept_kernels.stat().st_uid
    monkeypatch.setattr("multilane.user_cache.os.getuid", lambda: mine + 1)
    real = os.fstat

    def by(uid: int):
        return lambda handle: os.stat_result((*real(handle)[:4], uid, *real(handle)[5:]))

    monkeypatch.setattr(loading.os, "fstat", by(mine + 2))
    assert loading._stored(kept_kernels) is None
    assert "other users can write" in caplog.text
    monkeypatch.setattr(loading.os, "fstat", by(0))
    assert loading._stored(kept_kernels) is not None, "root may put them there for everybody"


def test_a_link_is_not_followed(kept_kernels, tmp_path, caplog):
    elsewhere = tmp_path / "elsewhere"
    kept_kernels.rename(elsewhere)
    kept_kernels.symlink_to(elsewhere)
    assert loading._stored(kept_kernels) is None
    assert "compiled again" in caplog.text


def test_all_that_is_made_for_them_is_the_users_alone(tmp_path):
    before = os.umask(0)
    try:
        loading._store(tmp_path / "a" / "b" / "x.image", b"code")
    finally:
        os.umask(before)
    for made in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "x.image"):
        assert made.stat().st_mode & 0o077 == 0


def test_without_a_place_to_keep_them_there_is_a_word_about_it(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    loading._store(blocked / "kernels" / "x.image", b"code")
    assert "each process compiles them" in caplog.text


def test_another_processor_or_compiler_has_kernels_of_its_own(monkeypatch):
    here = loading._image_path("this one")
    assert here == loading._image_path("this one")
    assert here != loading._image_path("another one")
    monkeypatch.setattr(loading, "version", lambda package: f"{package} 99")
    assert here != loading._image_path("this one")


def test_settings_that_change_what_numba_makes_have_kernels_of_their_own(monkeypatch):
    here = loading._image_path("this one")
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert here == loading._image_path("this one")
    monkeypatch.setenv("NUMBA_OPT", "0")
    unoptimised = loading._image_path("this one")
    assert here != unoptimised
    monkeypatch.setenv("NUMBA_DEBUGINFO", "1")
    assert loading._image_path("this one") not in (here, unoptimised)


@pytest.mark.slow
@pytest.mark.long
def test_they_are_compiled_where_the_users_functions_are_not(tmp_path):
    code = READ_ONE + "import numba; print(numba.config.DISABLE_JIT)"
    assert run_python(code, MULTILANE_CACHE=str(tmp_path), NUMBA_DISABLE_JIT="1").split() == ["True", "1"]


# The user's own functions need numba's runtime: to free memory, and to raise.
USE_NUMBA = """
import numpy as np
from numba import njit

@njit
def total(n):
    found = 0.0
    for i in range(n):
        found += np.ones(i + 1).sum()
    return found

@njit
def positive(n):
    if n < 0:
        raise ValueError("below zero")
    return n

assert total(4) == 10.0
try:
    positive(-1)
except ValueError as error:
    print(error)
"""
LOAD = """
from multilane.wire.records.loading import load_kernels
load_kernels()
"""
USE_NUMBA_A_LITTLE = """
import numba
numba.njit(lambda n: n + 1)(1)
"""


@pytest.mark.parametrize("code", [USE_NUMBA_A_LITTLE + LOAD + USE_NUMBA, LOAD + USE_NUMBA], ids=["before", "after"])
def test_the_users_numba_works_beside_kept_kernels(kept_kernels, code):
    assert run_python(code, MULTILANE_CACHE=str(kept_kernels.parents[1])).strip() == "below zero"


@pytest.mark.slow
@pytest.mark.long
def test_the_users_numba_works_beside_kernels_that_were_compiled(tmp_path):
    assert run_python(LOAD + USE_NUMBA, MULTILANE_CACHE=str(tmp_path)).strip() == "below zero"


@pytest.mark.slow  # the kernels are compiled anew
@pytest.mark.long
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
loading._stored = lambda place: None  # so that it compiles
loading._store = lambda place, data: None
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
