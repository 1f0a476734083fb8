"""Failed records that are retried where they are, without a copy: how often, when, and which were given up.

Thread: none (pure); one owner.

For records that no topic takes, and for work that must leave a group's topics alone. A key waits for its failed record,
so that its order is kept; other keys do not. Attempts travel with the record itself (`Resting`), so nothing has to be
forgotten when it succeeds. Owns the list of what was given up.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from multilane.outcome.backoff import BackoffSettings, due, seed_of
from multilane.outcome.flow import RetryFlow
from multilane.outcome.headers import described
from multilane.wire.records.record import Headers, Record


class Stay(enum.Enum):
    """Why a failed record is where it was."""

    KEPT = "kept"  # nobody takes it, or nobody may
    DOUBTED = "doubted"  # most calls failed alike: once, to see whether that is an outage
    OUTAGE = "outage"


class Resting(Record):
    """A failed record that is retried in place: how often it has failed there by itself, when it may be handled again
    (on the monotonic clock), and why it stays. Equal to the record that it is."""

    attempts: int = 0
    due: float = 0.0
    why: Stay = Stay.KEPT


def resting(record: Record, attempts: int, due_at: float, why: Stay = Stay.KEPT) -> Resting:
    made = Resting(*record)
    made.attempts, made.due, made.why = attempts, due_at, why
    return made


def fresh(record: Record, headers: Headers, timestamp: int) -> Record:
    """As a copy of it would be read: whatever it rested for counts no more."""
    return Record(*record)._replace(headers=headers, timestamp=timestamp)


def stay_of(record: Record) -> Stay | None:
    return record.why if isinstance(record, Resting) else None


def attempts_in_place(record: Record) -> int:
    """How often it has failed where it is, and was kept."""
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
class GivenUpRecord:
    """A record that no attempt has helped. Nothing of its content: whoever may see the topic can look it up."""

    partition: int
    offset: int
    attempts: int
    error: str  # its type
    text: str


class InPlace:
    def __init__(self, flow: RetryFlow, again: int, backoff: BackoffSettings | None, now: Callable[[], float]) -> None:
        """`flow`: the topics of the group, for copies of what is given up. `again`: how often after the first attempt.
        `now` is the monotonic clock."""
        self.flow = flow
        self.again = again
        self._backoff = backoff
        self._now = now
        self._given_up: list[GivenUpRecord] = []

    @property
    def waits(self) -> bool:
        """Whether a failed record has to wait for its next attempt."""
        return self._backoff is not None and self._backoff.delay > 0 and self.again > 0

    def try_again(self, record: Record) -> Resting | None:
        """It has failed once more: as it is to be retried, or None when it is to be given up."""
        return retried(record, self._backoff, self._now()) if attempts_in_place(record) < self.again else None

    def give_up(self, record: Record, error: BaseException) -> None:
        """It is wherever such records end; before it is settled."""
        kind = type(error).__qualname__
        text = described(error).decode(errors="replace").removeprefix(f"{kind}: ")
        attempts = attempts_in_place(record) + 1
        self._given_up.append(GivenUpRecord(record.partition, record.offset, attempts, kind, text))

    def take_given_up(self) -> tuple[GivenUpRecord, ...]:
        """Those since the last time."""
        taken, self._given_up = tuple(self._given_up), []
        return taken
