"""Failed records that are retried in place, without a copy: how often, when, and which are exhausted.

Thread: none (pure); one owner.

For records that no topic takes, and for work that must not write to a group's topics. A key waits for its failed
record, so that its order is kept; other keys do not wait. Attempts travel with the record itself (`Resting`), so
nothing has to be cleaned up when it succeeds. Owns the list of exhausted records.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from multilane.outcome.backoff import BackoffSettings, due, seed_of
from multilane.outcome.headers import described
from multilane.outcome.next_step import RetryPolicy
from multilane.wire.records.record import Headers, Record


class Stay(enum.Enum):
    """Why a failed record stays in place."""

    KEPT = "kept"  # no topic and no last step takes it, or they must not, or not yet
    DOUBTED = "doubted"  # most calls failed alike: it stays once, to see whether that is an outage
    OUTAGE = "outage"


class Resting(Record):
    """A failed record that is retried in place: how often it failed there, when it may be handled again (on the
    monotonic clock), and why it stays. Equal to the record itself."""

    attempts: int = 0
    due: float = 0.0
    why: Stay = Stay.KEPT


def resting(record: Record, attempts: int, due_at: float, why: Stay = Stay.KEPT) -> Resting:
    made = Resting(*record)
    made.attempts, made.due, made.why = attempts, due_at, why
    return made


def fresh(record: Record, headers: Headers, timestamp: int) -> Record:
    """The record as its copy would be read: why it rested no longer counts."""
    return Record(*record)._replace(headers=headers, timestamp=timestamp)


def stay_of(record: Record) -> Stay | None:
    return record.why if isinstance(record, Resting) else None


def attempts_in_place(record: Record) -> int:
    """How often it has failed in place."""
    return record.attempts if isinstance(record, Resting) else 0


def rests_until(record: Record) -> float:
    return record.due if isinstance(record, Resting) else 0.0


def retried(record: Record, backoff: BackoffSettings | None, now: float) -> Resting:
    """The record after one more failure, due after its back-off."""
    attempts = attempts_in_place(record) + 1
    if backoff is None:
        return resting(record, attempts, now)
    seed = seed_of(record.topic, record.partition, record.offset)
    return resting(record, attempts, now + due(backoff, 0, attempts - 1, seed) / 1_000)


@dataclass(frozen=True, slots=True)
class ExhaustedRecord:
    """A record whose attempts are exhausted. Without its content, which only readers of the topic may see."""

    partition: int
    offset: int
    attempts: int
    error: str  # its type
    text: str


class InPlace:
    def __init__(
        self, retry_policy: RetryPolicy, retries: int, backoff: BackoffSettings | None, now: Callable[[], float]
    ) -> None:
        """`retry_policy`: the topics of the group, for copies of exhausted records. `retries`: attempts after the
        first one. `now` is the monotonic clock."""
        self.retry_policy = retry_policy
        self.retries = retries
        self._backoff = backoff
        self._now = now
        self._exhausted: list[ExhaustedRecord] = []

    @property
    def waits(self) -> bool:
        """Whether a failed record waits for its next attempt."""
        return self._backoff is not None and self._backoff.delay > 0 and self.retries > 0

    def retry(self, record: Record) -> Resting | None:
        """A record failed once more. Returns the record to retry, or None if its attempts are exhausted."""
        return retried(record, self._backoff, self._now()) if attempts_in_place(record) < self.retries else None

    def note_exhausted(self, record: Record, error: BaseException) -> None:
        """Called after the last step or the error topic has the record, before it is settled."""
        kind = type(error).__qualname__
        text = described(error).decode(errors="replace").removeprefix(f"{kind}: ")
        attempts = attempts_in_place(record) + 1
        self._exhausted.append(ExhaustedRecord(record.partition, record.offset, attempts, kind, text))

    def take_exhausted(self) -> tuple[ExhaustedRecord, ...]:
        """The records exhausted since the last call."""
        taken, self._exhausted = tuple(self._exhausted), []
        return taken
