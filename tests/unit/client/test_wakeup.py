"""The wake-up call: never lost, and silent while nobody sleeps."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest

from multilane.client.net.wakeup import Wakeup


@pytest.fixture
def wakeup() -> Iterator[Wakeup]:
    made = Wakeup()
    yield made
    made.close()


def _rings(wakeup: Wakeup) -> bool:
    return bool(select.select([wakeup.fileno()], [], [], 0)[0])


def test_a_sleeper_is_woken_once(wakeup):
    wakeup.begin_turn()
    assert wakeup.may_sleep()
    wakeup.set()
    wakeup.set()
    assert _rings(wakeup)
    wakeup.clear()
    assert not _rings(wakeup)


def test_what_is_set_before_lying_down_is_not_slept_over(wakeup):
    """The decoder sets after the loop has looked and before it sleeps: no byte is written, so the flag must tell."""
    wakeup.begin_turn()
    wakeup.set()
    assert not _rings(wakeup)
    assert not wakeup.may_sleep()
    wakeup.awake()
    wakeup.begin_turn()
    assert wakeup.may_sleep()


def test_a_busy_thread_costs_no_system_call(wakeup):
    for _ in range(3):
        wakeup.set()
    assert not _rings(wakeup)


def test_setting_after_close_is_harmless():
    made = Wakeup()
    made.may_sleep()
    made.close()
    made.set()
