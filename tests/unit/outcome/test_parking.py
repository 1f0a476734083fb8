"""Parked keys: which records must follow, and until when."""

from __future__ import annotations

from lane_world import record_of
from multilane.outcome.parking import Parking


def test_a_key_is_parked_until_all_of_it_is_settled():
    parking = Parking("t.retry")
    parking.seen(b"a", 5)
    parking.seen(b"a", 5)
    parking.seen(b"a", 7)
    parking.seen(None, 8)
    assert parking.must_follow(record_of("a", 0))
    assert not parking.must_follow(record_of("b", 0))
    assert not parking.must_follow(record_of(None, 0))
    assert not parking.must_follow(record_of("a", 7, "t.retry"))
    parking.settled(record_of("a", 5, "t.retry"))
    parking.settled(record_of("a", 1))
    assert b"a" in parking
    parking.settled(record_of("a", 7, "t.retry"))
    assert len(parking) == 0


def test_a_copy_that_was_stored_somewhere_parks_its_key_until_it_is_found():
    parking = Parking("t.retry")
    parking.seen(b"a", -1)
    parking.seen(b"a", -1)
    parking.seen(b"a", 3)
    parking.settled(record_of("a", 3, "t.retry"))
    assert b"a" in parking, "one is still to be found"
    parking.seen(b"a", 4)
    parking.seen(b"a", 4)
    parking.settled(record_of("a", 4, "t.retry"))
    assert b"a" not in parking
