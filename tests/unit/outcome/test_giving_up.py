"""A record is given up only when its failure is no sign of an outage, or another record has succeeded since."""

from __future__ import annotations

from types import SimpleNamespace
from urllib.error import HTTPError

import pytest

from multilane.errors import ProcessingTimeout
from multilane.outcome.backoff import RetryDelay
from multilane.outcome.giving_up import FIRST_ALIKE, LONGEST_STAY, SHORT_STAY, GivingUp, looks_like_outage
from multilane.outcome.headers import ERROR_COUNT
from multilane.wire.records.record import Record

BACKOFF = RetryDelay("exponential", 1.0, 60.0, 2.0)
REFUSED = ConnectionRefusedError("refused")


def record(offset: int = 0) -> Record:
    return Record("orders", 0, offset, 0, 0, b"k", b"v")


class OperationalError(Exception):
    """As DB-API drivers raise it."""


class ServiceError(Exception):
    pass


def answered(status: int, name: str = "status_code") -> Exception:
    error = ServiceError("no")
    error.response = SimpleNamespace(**{name: status})
    return error


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        TimeoutError(),
        OSError(113, "No route to host"),
        ProcessingTimeout("took longer than 1 s"),
        OperationalError("server closed the connection"),
        HTTPError("http://a", 503, "unavailable", None, None),
        answered(500),
        answered(502, "status"),
        answered(429),
        caused(ServiceError("failed"), REFUSED),
        ExceptionGroup("tasks", [REFUSED, ValueError()]),
    ],
    ids=repr,
)
def test_no_connection_no_answer_and_a_server_to_blame_look_like_an_outage(error):
    assert looks_like_outage(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        FileNotFoundError("a"),
        answered(404),
        HTTPError("http://a", 400, "bad", None, None),
        caused(ServiceError("failed"), KeyError("a")),
    ],
    ids=repr,
)
def test_others_do_not(error):
    assert not looks_like_outage(error)


def test_a_refused_record_stays_until_another_has_succeeded():
    """The only key of a topic: all of its records went to the error topic in an outage."""
    giving_up = GivingUp(BACKOFF)
    first = giving_up.stays(record(), REFUSED, 7, 0.0)
    assert first is not None
    assert first.due == 1.0
    assert giving_up.stays(first, REFUSED, 7, 1.0).due == 3.0
    assert giving_up.stays(first, REFUSED, 8, 3.0) is None
    assert giving_up.stays(record(1), REFUSED, 8, 3.0) is not None, "it failed after that success"


def test_it_stays_for_ten_minutes_at_most():
    giving_up, now, probes = GivingUp(BACKOFF), 0.0, 0
    while (staying := giving_up.stays(record(), REFUSED, 0, now)) is not None:
        assert staying.due - now <= 10.0
        now, probes = staying.due, probes + 1
    assert LONGEST_STAY <= now <= LONGEST_STAY + 10.0
    assert 60 <= probes <= 65


def test_one_that_fails_for_a_reason_of_its_own_goes_at_once():
    giving_up = GivingUp(BACKOFF)
    assert giving_up.stays(record(), REFUSED, 0, 0.0) is not None
    assert giving_up.stays(record(), TimeoutError(), 0, 1.0) is not None, "that is an outage still"
    assert giving_up.stays(record(), ValueError("bad"), 0, 3.0) is None


def test_of_failures_that_only_are_alike_the_third_stays_for_a_minute():
    giving_up, now = GivingUp(BACKOFF), 0.0
    for offset in range(FIRST_ALIKE):
        assert giving_up.stays(record(offset), ValueError("bad"), 5, now) is None
    while (staying := giving_up.stays(record(9), ValueError("bad"), 5, now)) is not None:
        now = staying.due
    assert SHORT_STAY <= now <= SHORT_STAY + 10.0
    assert giving_up.stays(record(10), ValueError("bad"), 5, now) is not None, "nothing has succeeded yet"
    assert giving_up.stays(record(11), KeyError("bad"), 5, now) is None, "that is another reason"


def test_records_that_an_error_consumer_has_returned_are_no_further_witnesses():
    """Two poisoned records on a quiet topic would have waited for a minute in each of their rounds."""
    giving_up = GivingUp(BACKOFF)
    for offset in range(10):
        headers = ((ERROR_COUNT, b"1"),) if offset > 1 else ()
        assert giving_up.stays(record(offset)._replace(headers=headers), ValueError("bad"), 5, 0.0) is None
    returned = record(11)._replace(headers=((ERROR_COUNT, b"1"),))
    assert giving_up.stays(returned, REFUSED, 5, 0.0) is not None, "it looks like an outage nevertheless"


def test_failures_between_which_others_succeed_are_given_up():
    giving_up = GivingUp(BACKOFF)
    assert all(giving_up.stays(record(n), ValueError("bad"), n, float(n)) is None for n in range(50))


def test_what_stays_is_bounded(monkeypatch):
    monkeypatch.setattr("multilane.outcome.giving_up.MOST_STAYING", 3)
    giving_up = GivingUp(None)
    for offset in range(10):
        assert giving_up.stays(record(offset), REFUSED, 0, 0.0) is not None
    assert len(giving_up._staying) == 3


def test_attributes_of_an_error_may_do_anything():
    class Odd(Exception):
        @property
        def status(self):
            raise RuntimeError

    assert not looks_like_outage(Odd())
