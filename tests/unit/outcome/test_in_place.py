"""Failed records that are retried in place."""

from __future__ import annotations

import pickle

from multilane.outcome.backoff import RetryDelay
from multilane.outcome.in_place import ExhaustedRecord, InPlace, rests_until, retried
from multilane.outcome.next_step import RetryPolicy
from multilane.wire.records.record import Record


def record(offset: int) -> Record:
    return Record("t", 1, offset, 0, 0, b"k", b"secret")


def failed(in_place: InPlace, first: Record, times: int) -> Record | None:
    """The record after so many failures; None if its attempts are exhausted."""
    again: Record | None = first
    for _ in range(times):
        assert again is not None
        again = in_place.retry(again)
    return again


def test_as_often_as_it_may_be():
    in_place = InPlace(RetryPolicy("t"), 2, None, lambda: 7.0)
    assert failed(in_place, record(4), 2) == record(4)
    assert failed(in_place, record(4), 3) is None
    assert failed(in_place, record(5), 1) == record(5), "each has its own attempts"
    assert not in_place.waits


def test_exhausted_records_are_reported_once_and_without_their_content():
    in_place = InPlace(RetryPolicy("t"), 1, None, lambda: 0.0)
    again = failed(in_place, record(4), 1)
    assert again is not None
    assert in_place.retry(again) is None
    in_place.note_exhausted(again, ValueError("not today"))
    in_place.note_exhausted(record(9), RuntimeError())  # one that is hopeless at once
    taken = in_place.take_exhausted()
    assert taken == (
        ExhaustedRecord(1, 4, 2, "ValueError", "not today"),
        ExhaustedRecord(1, 9, 1, "RuntimeError", "RuntimeError"),
    )
    assert in_place.take_exhausted() == ()
    assert "secret" not in repr(taken)


def test_it_waits_as_the_configuration_says():
    now = [100.0]
    in_place = InPlace(RetryPolicy("t"), 5, RetryDelay("exponential", 1.0, 60.0, 2.0), lambda: now[0])
    assert in_place.waits
    assert rests_until(record(4)) == 0.0
    again = failed(in_place, record(4), 1)
    assert again is not None
    assert rests_until(again) == 101.0
    now[0] = 110.0
    later = failed(in_place, again, 1)
    assert later is not None
    assert rests_until(later) == 112.0


def test_a_resting_record_is_the_record_that_it_is():
    again = retried(record(4), RetryDelay(), 0.0)
    assert again == record(4)
    assert hash(again) == hash(record(4))
    assert (again.key, again.value) == (b"k", b"secret")
    assert again.attempts == 1


def test_worker_processes_get_it_with_its_attempts():
    again = pickle.loads(pickle.dumps(retried(record(4), RetryDelay(), 0.0)))  # noqa: S301 - our own
    assert (again, again.attempts) == (record(4), 1)
