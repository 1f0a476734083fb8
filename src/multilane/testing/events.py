"""What happens to records, as values: told by members and by whoever watches the brokers.

Thread: none (pure values).

A record has an identity (`record`) that its copies in retry and error topics keep, and each copy has a place of its
own. A member is one life of one process: started again it is another member. Times are of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

Run = tuple[int, int]  # first and last settled offset


class RecordPlace(NamedTuple):
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Produced:
    """A record lies in the topic that is consumed."""

    at: float
    record: str
    key: str | None
    place: RecordPlace


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of a record lies in a retry topic or, when it is final, in an error topic. `at` is when that was known."""

    at: float
    record: str
    key: str | None
    place: RecordPlace
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """A function was called with the record; records of one call have its number in common."""

    at: float
    member: str
    call: int
    record: str
    key: str | None
    place: RecordPlace
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Ended:
    at: float
    member: str
    call: int
    record: str
    key: str | None
    place: RecordPlace
    is_ok: bool = True


@dataclass(frozen=True, slots=True)
class Skipped:
    """Settled without a call, because a later record of the key (`by`) takes its place."""

    at: float
    member: str
    record: str
    key: str | None
    place: RecordPlace
    by: str


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's committed offset and the runs beyond it, as seen from outside. `at` is when it was known; whatever had
    been told by then comes before it."""

    at: float
    topic: str
    partition: int
    offset: int
    runs: tuple[Run, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """A member was given partitions or gave them back. `is_lost`: they were taken from it without its doing."""

    at: float
    member: str
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """A member has ended in order."""

    at: float
    member: str


@dataclass(frozen=True, slots=True)
class Killed:
    """A member is gone without having been asked; `at` is when that was certain."""

    at: float
    member: str


Event = Produced | Copied | Started | Ended | Skipped | Committed | Rebalanced | Left | Killed


def in_order(*streams: Iterable[Event]) -> list[Event]:
    """Several streams as one. Events of the same time stay as they are told: one stream after the other."""
    return sorted((event for stream in streams for event in stream), key=lambda event: event.at)
