"""Consumers that close before their groups were told: they stay until that is done, or their time is up."""

from __future__ import annotations

from concurrent.futures import Future

from multilane.client.departures import Departures
from multilane.client.net.requests import NEVER


class Parting:
    """A participant whose group is told when the test says so."""

    def __init__(self, *, at_once=False):
        self.at_once = at_once
        self.left = None

    def part(self, left, now):
        self.left = left
        if self.at_once:
            left()


def _departures():
    gone = []
    return Departures(gone.append), gone


def test_one_whose_group_knows_goes_at_once():
    departures, gone = _departures()
    group_client, told = Parting(at_once=True), Future()
    departures.begin(group_client, 5.0, told, 0.0)
    assert told.done()
    assert not gone
    assert departures.end(0.0) == NEVER
    assert gone == [group_client]


def test_one_that_is_answered_later_stays_until_then():
    departures, gone = _departures()
    group_client, told = Parting(), Future()
    departures.begin(group_client, 5.0, told, 0.0)
    assert departures.end(1.0) == 4.0
    assert not told.done()
    assert not gone
    group_client.left()
    assert told.done()
    assert departures.end(2.0) == NEVER
    assert gone == [group_client]


def test_one_without_an_answer_stays_until_its_time_is_up():
    departures, gone = _departures()
    group_client, told = Parting(), Future()
    departures.begin(group_client, 5.0, told, 0.0)
    departures.end(4.9)
    assert not gone
    assert departures.end(5.0) == NEVER
    assert told.done()
    assert gone == [group_client]
    group_client.left()  # late: nobody waits any more
    departures.end(6.0)
    assert gone == [group_client]


def test_one_without_time_is_asked_once():
    departures, gone = _departures()
    told = Future()
    departures.begin(Parting(), 0.0, told, 1.0)
    assert not told.done()
    assert not gone
    departures.end(1.0)
    assert told.done()
    assert gone


def test_at_the_end_of_the_thread_nobody_waits():
    departures, gone = _departures()
    told = [Future(), Future()]
    for future in told:
        departures.begin(Parting(), 5.0, future, 0.0)
    departures.abandon()
    assert all(future.done() for future in told)
    assert not gone
