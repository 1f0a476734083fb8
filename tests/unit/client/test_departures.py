"""Consumers that close before they have left their groups: the members stay until they have, or until a deadline."""

from __future__ import annotations

from concurrent.futures import Future

from multilane.client.departures import Departures
from multilane.client.net.requests import NEVER


class Member:
    """A group client that leaves its group when the test calls `left`."""

    def __init__(self, *, at_once=False):
        self.at_once = at_once
        self.left = None

    def part(self, left, now):
        self.left = left
        if self.at_once:
            left()


def _departures():
    departed = []
    return Departures(departed.append), departed


def test_a_member_that_has_left_departs_at_once():
    departures, departed = _departures()
    group_client, left = Member(at_once=True), Future()
    departures.begin(group_client, 5.0, left, 0.0)
    assert left.done()
    assert not departed
    assert departures.end(0.0) == NEVER
    assert departed == [group_client]


def test_a_member_stays_until_it_has_left():
    departures, departed = _departures()
    group_client, left = Member(), Future()
    departures.begin(group_client, 5.0, left, 0.0)
    assert departures.end(1.0) == 4.0
    assert not left.done()
    assert not departed
    group_client.left()
    assert left.done()
    assert departures.end(2.0) == NEVER
    assert departed == [group_client]


def test_a_member_without_a_response_stays_until_its_deadline():
    departures, departed = _departures()
    group_client, left = Member(), Future()
    departures.begin(group_client, 5.0, left, 0.0)
    departures.end(4.9)
    assert not departed
    assert departures.end(5.0) == NEVER
    assert left.done()
    assert departed == [group_client]
    group_client.left()  # a late response: the future is done
    departures.end(6.0)
    assert departed == [group_client]


def test_a_member_whose_deadline_has_passed_is_polled_once():
    departures, departed = _departures()
    left = Future()
    departures.begin(Member(), 0.0, left, 1.0)
    assert not left.done()
    assert not departed
    departures.end(1.0)
    assert left.done()
    assert departed


def test_the_end_of_the_thread_completes_every_future():
    departures, departed = _departures()
    left = [Future(), Future()]
    for future in left:
        departures.begin(Member(), 5.0, future, 0.0)
    departures.abandon()
    assert all(future.done() for future in left)
    assert not departed
