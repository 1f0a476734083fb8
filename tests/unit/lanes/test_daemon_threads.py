"""Threads for single calls: they end when they had none for a while, and no call is lost to one that ends."""

from __future__ import annotations

import threading

import pytest

from multilane.lanes.daemon_threads import DaemonThreads

WAIT = 10.0


@pytest.fixture
def short():
    pool = DaemonThreads(4, idle=0.01)
    yield pool
    pool.shutdown()


def test_a_thread_without_calls_ends(short):
    thread = short.submit(threading.current_thread).result(WAIT)
    thread.join(WAIT)
    assert not thread.is_alive()


def test_a_call_after_that_gets_a_new_thread(short):
    first = short.submit(threading.current_thread).result(WAIT)
    first.join(WAIT)
    second = short.submit(threading.current_thread).result(WAIT)
    assert second is not first
    second.join(WAIT)
    assert not second.is_alive()


def test_calls_that_come_while_threads_end_all_run():
    pool = DaemonThreads(4, idle=0.0)
    try:
        for _ in range(2_000):
            assert [call.result(WAIT) for call in [pool.submit(int, n) for n in range(3)]] == [0, 1, 2]
    finally:
        pool.shutdown()


def test_a_thread_with_calls_stays():
    pool = DaemonThreads(1, idle=WAIT)
    try:
        assert len({pool.submit(threading.current_thread).result(WAIT) for _ in range(50)}) == 1
    finally:
        pool.shutdown()


def test_calls_that_had_to_wait_for_a_thread_leave_nothing_behind(short):
    """More calls at once than threads, then none for a while, then one: it gets a thread, too."""
    for _ in range(3):
        gate = threading.Event()
        calls = [short.submit(_wait_for, gate) for _ in range(12)]
        gate.set()
        for thread in {call.result(WAIT) for call in calls}:
            thread.join(WAIT)
        assert short.submit(int, 7).result(WAIT) == 7


def _wait_for(gate):
    assert gate.wait(WAIT)
    return threading.current_thread()
