"""Reports failed records: the first of a kind with its traceback and position, then counts.

Thread: any (a lock); `note` is called on the loop, for failures only.

`FailureLog` writes to the log, in the process of an engine or of a Spark driver. `FailureCollector` collects failures
in a Spark worker, and the driver logs those of all workers.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from multilane.clock import Clock, SystemClock
from multilane.escaping import escaped
from multilane.logs import indented, logger
from multilane.outcome.failure_kinds import FailureKind, FailureKinds, Sighting, sighting_from
from multilane.stacks import class_of, message_of, raised_at, stack_of
from multilane.wire.records.record import Record

log = logger(__name__)

SUMMARY_SECONDS: Final = 10.0
_LONGEST_MESSAGE: Final = 200
_LONGEST_STACK: Final = 8_000
_KINDS_PER_LINE: Final = 3


class FailureSink(Protocol):
    def note(self, consumer: str, record: Record, error: BaseException) -> None: ...


class FailureCollector:
    """Collects failures until they are taken."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._kinds = FailureKinds()
        self._stacks: dict[FailureKind, str] = {}  # of kinds that were not taken yet

    def note(self, consumer: str, record: Record, error: BaseException) -> None:
        seen = seen_once(consumer, record, error)
        with self._lock:
            if self._kinds.add(seen, self._clock.monotonic()):
                self._stacks[seen.kind] = _stack(error)

    def take(self) -> list[dict[str, Any]]:
        """As JSON, for the driver."""
        with self._lock:
            taken, stacks = self._kinds.take(), self._stacks
            self._stacks = {}
        return [one.to_json() | {"stack": stacks.get(one.kind, "")} for one in taken]


class FailureLog:
    """Logs the first failure of each kind at once. With `is_taken` another component logs the counts that `take`
    returns; otherwise `note` logs them, at most every ten seconds."""

    def __init__(self, clock: Clock | None = None, *, is_taken: bool = False) -> None:
        self._clock = clock or SystemClock()
        self._is_taken = is_taken
        self._lock = threading.Lock()
        self._kinds = FailureKinds()
        self._summed_at = self._clock.monotonic()

    def note(self, consumer: str, record: Record, error: BaseException) -> None:
        seen = seen_once(consumer, record, error)
        now = self._clock.monotonic()
        with self._lock:
            is_new = self._kinds.add(seen, now)
            due = [] if self._is_taken or now - self._summed_at < SUMMARY_SECONDS else self._kinds.take()
            self._summed_at = now if due else self._summed_at
        if is_new:
            _log_first(seen, _stack(error))
        for name, kinds in by_consumer(due).items():
            log.warning("consumer %s: failed since the last summary: %s", name, counted(kinds))

    def add(self, reported: Iterable[Any]) -> None:
        """The failures that a worker reports. Invalid ones are ignored: a failure must not cause another."""
        for one in reported:
            try:
                seen = sighting_from(one)
            except (KeyError, TypeError, ValueError):
                log.debug("cannot parse a worker's failure report")
                continue
            with self._lock:
                is_new = self._kinds.add(seen, self._clock.monotonic())
            if is_new:
                _log_first(seen, seen.stack)

    def take(self) -> list[Sighting]:
        with self._lock:
            return self._kinds.take()

    def begin(self) -> None:
        """The counts start over. Kinds that were logged stay known."""
        with self._lock:
            self._kinds.take()
            self._kinds.totals.clear()

    @property
    def totals(self) -> dict[FailureKind, int]:
        with self._lock:
            return dict(self._kinds.totals)

    def listed(self) -> list[Sighting]:
        with self._lock:
            return self._kinds.listed()


def seen_once(consumer: str, record: Record, error: BaseException) -> Sighting:
    identity = record.key if record.key is not None else record.value or b""
    kind = FailureKind(
        consumer, escaped(class_of(error), _LONGEST_MESSAGE), escaped(raised_at(error), _LONGEST_MESSAGE)
    )
    message = escaped(message_of(error), _LONGEST_MESSAGE)
    return Sighting(kind, 1, frozenset((zlib.crc32(identity),)), message, name_of(record))


def name_of(record: Record) -> str:
    """`orders-3@1042, key #5d41402a`: only a digest of the key, because keys may be personal data."""
    key = "no key" if record.key is None else f"key #{hashlib.blake2b(record.key, digest_size=4).hexdigest()}"
    return f"{record.topic}-{record.partition}@{record.offset}, {key}"


def by_consumer(seen: Iterable[Sighting]) -> dict[str, list[Sighting]]:
    found: dict[str, list[Sighting]] = {}
    for one in seen:
        found.setdefault(one.kind.consumer, []).append(one)
    return found


def counted(seen: Sequence[Sighting]) -> str:
    """`618 x ValueError at shop/orders.py:20: no stock (last: orders-3@1042); ...`."""
    kinds = [f"{one.count:,} x {one.kind}: {one.message} (last: {one.record})" for one in seen[:_KINDS_PER_LINE]]
    rest = sum(one.count for one in seen[_KINDS_PER_LINE:])
    return "; ".join([*kinds, *([f"{rest:,} of {len(seen) - _KINDS_PER_LINE} other kinds"] if rest else [])])


def _stack(error: BaseException) -> str:
    return stack_of(error, _LONGEST_STACK, hides_ours=True)


def _log_first(seen: Sighting, stack: str) -> None:
    log.error(
        "consumer %s: %s failed: %s: %s. Further failures of this kind are counted%s",
        *(seen.kind.consumer, seen.record, seen.kind, seen.message, indented(_plain(stack)) if stack else ""),
    )


def _plain(stack: str) -> str:
    """A worker's stack came over a connection: its control characters are escaped again."""
    return "\n".join(escaped(line, _LONGEST_STACK) for line in stack[:_LONGEST_STACK].split("\n"))
