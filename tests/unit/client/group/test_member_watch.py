"""How long rebalances take, as a group client notes it after each poll of its membership."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace

import pytest

from multilane.client.events import EventQueue
from multilane.client.group.classic.states import REBALANCING as CLASSIC
from multilane.client.group.classic.states import ClassicState
from multilane.client.group.consumer_protocol.states import REBALANCING as CONSUMER
from multilane.client.group.consumer_protocol.states import MemberState
from multilane.client.group.member_watch import MemberWatch
from multilane.client.group.membership import Identity, MemberStatus
from multilane.metrics.observer import Observer

MEMBER = Identity("g", "m", 1, None, "consumer")


class Durations(Observer):
    def __init__(self) -> None:
        self.seen: list[tuple[float, str]] = []

    def duration(self, name, seconds, times=1, **labels):
        assert (name, times) == ("group.rebalance.duration", 1)
        self.seen.append((seconds, labels["group"]))


@pytest.fixture
def noted():
    """`noted(seconds, is_rebalancing, identity)` notes a member, and returns the durations reported for that."""
    observer = Durations()
    watch = MemberWatch("g", MemberStatus(), EventQueue(SimpleNamespace(set=lambda: None)), observer, lambda: 1)

    def note(now, is_rebalancing, identity=MEMBER):
        member = SimpleNamespace(
            identity=identity, owned={"p"}, is_rebalancing=is_rebalancing, fenced_after=lambda session: inf
        )
        before = len(observer.seen)
        watch.note(member, None, None, now)
        return observer.seen[before:]

    return note


def test_a_rebalance_takes_from_its_first_sign_until_the_member_is_stable(noted):
    assert [noted(now, True) for now in (10.0, 11.0, 12.0)] == [[], [], []]
    assert noted(12.5, False) == [(2.5, "g")]
    assert noted(13.0, False) == [], "once"
    noted(20.0, True)
    assert noted(21.0, False) == [(1.0, "g")]


def test_a_member_that_leaves_meanwhile_reports_nothing(noted):
    noted(10.0, True)
    assert noted(11.0, False, identity=None) == []
    assert noted(12.0, False) == []


def test_every_state_on_the_way_to_stable_counts():
    out = {ClassicState.OUTSIDE, ClassicState.STABLE, ClassicState.AWAY, ClassicState.LEAVING, ClassicState.FAILED}
    assert set(ClassicState) - CLASSIC == out
    out = {MemberState.UNSUBSCRIBED, MemberState.STABLE, MemberState.STALE, MemberState.LEAVING, MemberState.FATAL}
    assert set(MemberState) - CONSUMER == out
