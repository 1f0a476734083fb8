"""Decides whether a record that has used up its attempts is given up now: sent to the error topic or the last step.

Thread: none (pure); one owner, which passes in the time and the number of successful calls.

In an outage records are not to blame. With few records or keys counting cannot distinguish an outage from poison, so
such a record stays in place and is retried, if its failure looks like an outage by its nature (a refused
connection, a timeout, HTTP 5xx), or if the records before it were given up alike. It is given up as soon as a call for
another record has succeeded meanwhile, it fails for another reason, or its time is over. Owns the records that stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from multilane.outcome.backoff import BackoffSettings, seed_of
from multilane.outcome.headers import ERROR_COUNT, last_value
from multilane.outcome.in_place import Resting, attempts_in_place, resting
from multilane.outcome.outage import Failure, rest_before
from multilane.stacks import class_of, raised_at
from multilane.wire.records.record import Record

LONGEST_STAY: Final = 600.0  # seconds for a failure that looks like an outage
SHORT_STAY: Final = 60.0  # seconds for one that only is like those before
FIRST_ALIKE: Final = 2  # records that are given up alike before others stay
MOST_STAYING: Final = 10_000  # records; of more, the oldest start over
_MOST_CAUSES: Final = 5
_TOO_MANY_REQUESTS: Final = 429
_REQUEST_TIMEOUT: Final = 408
_SERVER_ERROR: Final = 500
_NAMES: Final = re.compile("timeout|timedout|connect|unavailable|unreachable|toomanyrequests|operationalerror", re.I)
_OF_FILES: Final = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)


@dataclass(slots=True)
class _Staying:
    failure: Failure
    since: float
    succeeded: int
    seconds: float  # that it may stay
    probes: int = 0


class GivingUp:
    def __init__(self, backoff: BackoffSettings | None) -> None:
        self._backoff = backoff
        self._staying: dict[tuple[str, int, int], _Staying] = {}
        self._alike: Failure | None = None  # how the last records were given up
        self._many = 0  # of them, since the last successful call
        self._succeeded = 0

    def stays(self, record: Record, error: BaseException, succeeded: int, now: float) -> Resting | None:
        """The attempts of a record are used up; `succeeded`: successful calls so far. Returns the record in the form in
        which it is handled again, or None if it is given up."""
        failure = Failure(class_of(error), raised_at(error), None)
        place = (record.topic, record.partition, record.offset)
        staying = self._staying.pop(place, None)
        is_news = last_value(record.headers, ERROR_COUNT) is None  # else it was given up before: it proves nothing
        is_alike = is_news and self._is_alike(failure, succeeded)
        looks = looks_like_outage(error)
        if staying is None:
            staying = _Staying(failure, now, succeeded, LONGEST_STAY if looks else SHORT_STAY)
            is_over = not (looks or (is_alike and self._many >= FIRST_ALIKE))
        else:
            has_changed = not (looks or failure.is_like(staying.failure))
            is_over = has_changed or succeeded > staying.succeeded or now - staying.since >= staying.seconds
        if is_over:
            if is_news:
                self._many = self._many + 1 if is_alike else 1
                self._alike, self._succeeded = failure, succeeded
            return None
        self._remember(place, staying)
        again = now + rest_before(self._backoff, staying.probes, seed_of(*place))
        staying.probes += 1
        return resting(record, attempts_in_place(record), again)

    def _is_alike(self, failure: Failure, succeeded: int) -> bool:
        return self._alike is not None and self._succeeded == succeeded and failure.is_like(self._alike)

    def _remember(self, place: tuple[str, int, int], staying: _Staying) -> None:
        """Nobody reports records that succeed: those that have stayed for the longest time are forgotten."""
        while len(self._staying) >= MOST_STAYING:
            del self._staying[next(iter(self._staying))]
        self._staying[place] = staying


def looks_like_outage(error: BaseException) -> bool:
    """By its nature, or that of its causes: no connection, no answer in time, or an answer that blames the server."""
    for cause in _causes(error):
        status = _http_status(cause)
        if status is not None:
            return status >= _SERVER_ERROR or status in (_TOO_MANY_REQUESTS, _REQUEST_TIMEOUT)
        if isinstance(cause, OSError) and not isinstance(cause, _OF_FILES):
            return True  # TimeoutError and ConnectionError are, too
        if _NAMES.search(type(cause).__name__):
            return True
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _http_status(error: BaseException) -> int | None:
    """As the errors of aiohttp, httpx, requests and urllib have it."""
    with suppress(Exception):  # attributes of foreign errors may do anything
        for owner in (error, getattr(error, "response", None)):
            for name in ("status_code", "status", "code"):
                found = getattr(owner, name, None)
                if isinstance(found, int) and 100 <= found < 600:
                    return found
    return None
