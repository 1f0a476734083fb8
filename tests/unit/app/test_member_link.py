"""What the parent of several processes and a member say to each other, over a real pipe."""

from __future__ import annotations

import multiprocessing
import queue

import pytest

from multilane.app.member_process import _receive
from multilane.app.member_processes import MemberLink, MemberProcesses
from multilane.clock import ManualClock
from multilane.engines.process.messages import MemberExit, MemberReport, OverridesChange
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.metrics.observer import Counts, Gauge

PAUSED = ConsumerOverrides(is_paused=True)
REPORT = MemberReport(
    [("lanes.records.settled", {"consumer": "orders"}, 3)], [], [Gauge("lanes.calls", {"consumer": "orders"}, 1)]
)


@pytest.fixture
def pipe():
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("exits", [True, False])
def test_the_reports_of_a_member_arrive_and_its_exit_is_known(pipe, exits):
    ours, theirs = pipe
    taken = queue.SimpleQueue()
    link = MemberLink(ours, taken.put)
    for message in [REPORT, REPORT, *([MemberExit()] if exits else [])]:
        theirs.send(message)
    theirs.close()
    assert link.join() is exits
    assert [taken.get_nowait() for _ in range(2)] == [REPORT, REPORT]
    assert taken.empty()


class SteeredMember:
    def __init__(self):
        self.overrides = {}

    def apply_overrides(self, consumer, overrides):
        self.overrides[consumer] = overrides


def test_a_member_is_steered_until_its_parent_is_gone(pipe):
    ours, theirs = pipe
    for consumer in ("orders", "bills"):
        ours.send(OverridesChange(consumer, PAUSED))
    ours.close()
    member = SteeredMember()
    _receive(member, theirs)
    assert member.overrides == {"orders": PAUSED, "bills": PAUSED}


def test_what_is_steered_before_a_member_starts_reaches_it(pipe):
    ours, theirs = pipe
    processes = MemberProcesses("shop:app", 2, "INFO", ManualClock())
    processes.apply_overrides("orders", PAUSED)
    processes._link(1, MemberLink(ours, lambda report: None))
    assert theirs.recv() == OverridesChange("orders", PAUSED)
    processes.apply_overrides("orders", ConsumerOverrides())
    assert theirs.recv() == OverridesChange("orders", ConsumerOverrides())
    theirs.close()


def test_reports_of_two_members_are_those_of_two_sources():
    observer = Sources()
    processes = MemberProcesses("shop:app", 2, "INFO", ManualClock(), observer)
    for number in range(2):
        processes._take(number, REPORT)
    assert observer.total("lanes.records.settled") == 6
    assert len(observer.seen) == 2


class Sources(Counts):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def gauges(self, source, values):
        self.seen.add(source)
