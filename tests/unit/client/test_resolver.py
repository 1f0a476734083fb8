"""Names are looked up elsewhere, and an answer is for the connection that asked."""

from __future__ import annotations

import pytest

from multilane.client.net.resolver import Resolver
from multilane.clock import ManualClock
from multilane.errors import NetworkError
from waiting_pool import WaitingPool


class Harness(WaitingPool):
    """Takes the place of the pool, and has the function that it runs."""

    def __init__(self):
        super().__init__()
        self.woken = 0
        self.looked = 0
        self.clock = ManualClock(100.0)
        self.trouble = None
        self.resolver = Resolver(lambda: self, self.wake, self.clock.monotonic, self.look)

    def wake(self):
        self.woken += 1

    def look(self, host, port):
        if self.trouble is not None:
            raise self.trouble
        self.looked += 1
        return [(2, (f"{host} at look {self.looked}", port))]


def test_a_name_is_looked_up_once_for_each_connection():
    harness = Harness()
    assert harness.resolver.addresses("broker", 9) is None
    assert harness.resolver.addresses("broker", 9) is None
    harness.work()
    assert harness.woken == 1
    assert harness.resolver.addresses("broker", 9) == [(2, ("broker at look 1", 9))]
    assert harness.resolver.addresses("broker", 9) is None
    harness.work()
    assert harness.resolver.addresses("broker", 9) == [(2, ("broker at look 2", 9))]


def test_a_look_up_may_take_long():
    harness = Harness()
    harness.resolver.addresses("broker", 9)
    harness.clock.advance(60.0)
    harness.work()
    assert harness.resolver.addresses("broker", 9) is not None


def test_an_answer_that_nobody_came_for_is_not_used_later():
    harness = Harness()
    harness.resolver.addresses("broker", 9)
    harness.work()
    harness.clock.advance(60.0)
    assert harness.resolver.addresses("broker", 9) is None
    harness.work()
    assert harness.resolver.addresses("broker", 9) == [(2, ("broker at look 2", 9))]


def test_a_failure_is_reported_once_and_not_long_after():
    harness = Harness()
    harness.trouble = OSError(1, "no such name")
    harness.resolver.addresses("broker", 9)
    harness.work()
    with pytest.raises(NetworkError, match="cannot resolve broker broker:9: no such name"):
        harness.resolver.addresses("broker", 9)
    harness.resolver.addresses("broker", 9)
    harness.work()
    harness.clock.advance(60.0)
    harness.trouble = None
    assert harness.resolver.addresses("broker", 9) is None


def test_numbers_need_no_pool():
    harness = Harness()
    assert harness.resolver.addresses("127.0.0.1", 9) == [(2, ("127.0.0.1 at look 1", 9))]
    assert harness.waiting == []
