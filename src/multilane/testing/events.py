"""The events of records, as values: reported by members and by watchers of the brokers.

Thread: none (pure values).

A record has an identity (`record`) that its copies in retry and error topics keep; each copy has a place (topic,
partition, offset) of its own. A member is one run of one process: after a restart it is another member. Times are of
one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

SettledRun = tuple[int, int]  # first and last settled offset


class RecordPlace(NamedTuple):
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Produced:
    """A record is in the consumed topic."""

    at: float
    record: str
    key: str | None
    place: RecordPlace


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of a record is in a retry topic or, if it is final, in an error topic. `at` is when that was observed."""

    at: float
    record: str
    key: str | None
    place: RecordPlace
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """A function was called with the record; the records of one call share its number."""

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
    """Settled without a call, because a later record of the key (`by`) supersedes it."""

    at: float
    member: str
    record: str
    key: str | None
    place: RecordPlace
    by: str


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's committed offset and the runs beyond it, as observed from outside. `at` is when it was observed; events
    reported by then come before it."""

    at: float
    topic: str
    partition: int
    offset: int
    runs: tuple[SettledRun, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """Partitions were assigned to a member, or it gave them back. `is_lost`: they were taken from it."""

    at: float
    member: str
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """A member left cleanly."""

    at: float
    member: str


@dataclass(frozen=True, slots=True)
class Killed:
    """A member died without leaving; `at` is when that was certain."""

    at: float
    member: str


Event = Produced | Copied | Started | Ended | Skipped | Committed | Rebalanced | Left | Killed


def in_order(*streams: Iterable[Event]) -> list[Event]:
    """Merges several streams. Events of the same time keep their order: one stream after the other."""
    return sorted((event for stream in streams for event in stream), key=lambda event: event.at)
