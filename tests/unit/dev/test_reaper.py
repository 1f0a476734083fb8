"""The reaper: kills what is left, spares what was taken back, and cannot be talked out of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from multilane.dev.reaper import Reaper, read_commands

WAITING = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]


@pytest.fixture
def child():
    process = subprocess.Popen(WAITING)
    yield process
    process.kill()
    process.wait()


def test_orders_arrive_in_pieces():
    read, write = os.pipe()
    os.write(write, b"+12\n+3")
    os.write(write, b"4\n-12\nd/var/some where\n+5")
    os.close(write)
    try:
        # An order cut off in the middle is none: +5 might have become +51.
        assert read_commands(read, os.getppid()) == ({34}, ["/var/some where"])
    finally:
        os.close(read)


def test_another_parent_means_the_owner_is_gone():
    read, write = os.pipe()
    try:
        assert read_commands(read, os.getppid() + 1) == (set(), [])
    finally:
        os.close(read)
        os.close(write)


def test_what_is_watched_dies_and_directories_go(child, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "log").write_text("x")
    reaper = Reaper()
    reaper.watch(child.pid)
    reaper.remove_at_end(tmp_path / "data")
    reaper.close()
    assert child.wait(20) == -signal.SIGKILL
    assert not (tmp_path / "data").exists()


def test_what_was_taken_back_lives(child):
    reaper = Reaper()
    reaper.watch(child.pid)
    reaper.forget(child.pid)
    reaper.close()
    assert child.poll() is None


def test_ordinary_signals_do_not_end_it(child):
    reaper = Reaper()
    reaper.watch(child.pid)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        reaper._process.send_signal(number)
    reaper.close()
    assert child.wait(20) == -signal.SIGKILL
