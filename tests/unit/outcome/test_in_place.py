"""Failed records that are tried again where they are."""

from __future__ import annotations

from multilane.outcome.backoff import Backoff
from multilane.outcome.flow import Flow
from multilane.outcome.in_place import GivenUp, InPlace
from multilane.wire.records.record import Record


def record(offset: int) -> Record:
    return Record("t", 1, offset, 0, 0, b"k", b"secret")


def test_as_often_as_it_may_be():
    place = InPlace(Flow("t"), 2, None, lambda: 7.0)
    assert [place.tries_again(record(4)) for _ in range(3)] == [True, True, False]
    assert place.tries_again(record(5)), "each has its own attempts"
    assert not place.waits


def test_what_is_given_up_is_told_once_and_without_its_content():
    place = InPlace(Flow("t"), 1, None, lambda: 0.0)
    place.tries_again(record(4))
    place.tries_again(record(4))
    place.give_up(record(4), ValueError("not today"))
    place.give_up(record(9), RuntimeError())  # one that is hopeless at once
    told = place.take_given_up()
    assert told == (GivenUp(1, 4, 2, "ValueError", "not today"), GivenUp(1, 9, 1, "RuntimeError", "RuntimeError"))
    assert place.take_given_up() == ()
    assert "secret" not in repr(told)


def test_it_waits_as_the_configuration_says():
    now = [100.0]
    place = InPlace(Flow("t"), 5, Backoff("exponential", 1.0, 60.0, 2.0), lambda: now[0])
    assert place.waits
    assert place.due_at(record(4)) == 0.0
    place.tries_again(record(4))
    assert place.due_at(record(4)) == 101.0
    now[0] = 110.0
    place.tries_again(record(4))
    assert place.due_at(record(4)) == 112.0
    assert place.due_at(record(5)) == 0.0


def test_what_is_settled_is_forgotten():
    place = InPlace(Flow("t"), 1, Backoff(), lambda: 0.0)
    for offset in (3, 4, 5):
        place.tries_again(record(offset))
    place.forget(1, 5)
    place.forget(2, 99)
    assert [place.due_at(record(offset)) for offset in (3, 4, 5)] == [0.0, 0.0, 1.0]
