"""A process that was told to end, and functions that keep it from ending."""

from __future__ import annotations

import threading

from multilane.app import last_resort
from multilane.app.last_resort import LastResort, leave_within


def test_a_blocked_loop_ends_the_process(monkeypatch):
    monkeypatch.setattr(last_resort, "_MARGIN", 0.01)
    monkeypatch.setattr(last_resort, "_LOOP_TIMEOUT", 0.01)
    left = _Left()
    LastResort(lambda: 0.0, lambda what: None, left).arm()
    assert left.codes() == [1]


def test_a_loop_that_runs_has_its_time(monkeypatch):
    monkeypatch.setattr(last_resort, "_MARGIN", 0.01)
    left, asked = _Left(), threading.Semaphore(0)

    def answer(what):
        what()
        asked.release()

    resort = LastResort(lambda: 0.0, answer, left)
    resort.arm()
    assert all(asked.acquire(timeout=30) for _ in range(3))
    monkeypatch.setattr(last_resort, "leave_within", lambda: None)
    resort.disarm()
    assert not left.has_left.is_set()


def test_threads_that_functions_leave_behind_do_not_keep_the_process():
    left = _Left()
    begin = leave_within(0.0, left)
    assert not left.has_left.is_set()
    begin()
    assert left.codes() == [1]


class _Left:
    def __init__(self):
        self.has_left = threading.Event()
        self._codes = []

    def __call__(self, code):
        self._codes.append(code)
        self.has_left.set()

    def codes(self):
        assert self.has_left.wait(30)
        return self._codes
