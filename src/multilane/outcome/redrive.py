"""Listing and replaying error topics: groups of errors, filters, and marks of the records that were replayed.

Thread: none (pure).

Owns the replay marks, as a frontier and runs beyond it, and the groups of errors. Never holds more groups than a person
can read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from multilane.commit.runs import Run
from multilane.outcome.error_patterns import coarse_pattern_of, pattern_of
from multilane.outcome.failure_headers import error_in
from multilane.wire.records.record import Record

_OTHERS: Final = "(all other errors)"
_MOST_GROUPS: Final = 500
_MOST_STATUSES: Final = 10  # of one error: if there are more, the numbers are not statuses


@dataclass(slots=True)
class ErrorGroup:
    pattern: str
    count: int = 0
    replayed: int = 0
    first: float = inf
    last: float = -inf
    partitions: set[int] = field(default_factory=set)
    example: str = ""  # topic/partition@offset of the last record

    def add(self, record: Record, *, is_replayed: bool) -> None:
        self.count += 1
        self.replayed += is_replayed
        self.first = min(self.first, record.timestamp)
        self.last = max(self.last, record.timestamp)
        self.partitions.add(record.partition)
        self.example = f"{record.topic}/{record.partition}@{record.offset}"

    def absorb(self, other: ErrorGroup) -> None:
        self.count += other.count
        self.replayed += other.replayed
        if other.last >= self.last:
            self.example = other.example
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.partitions |= other.partitions


class Groups:
    """The errors of one topic. Statuses tell errors apart, unless there are too many of them to be statuses."""

    def __init__(self) -> None:
        self._groups: dict[str, ErrorGroup] = {}
        self._statuses: dict[str, set[str]] = {}  # patterns, by the pattern without statuses
        self._coarse: set[str] = set()  # patterns that had too many statuses

    def add(self, record: Record, *, is_replayed: bool = False) -> None:
        text = error_in(record.headers)
        pattern, coarse = pattern_of(text), coarse_pattern_of(text)
        if pattern != coarse:
            pattern = self._by_status(pattern, coarse)
        if pattern not in self._groups and len(self._groups) >= _MOST_GROUPS:
            pattern = _OTHERS
        self._groups.setdefault(pattern, ErrorGroup(pattern)).add(record, is_replayed=is_replayed)

    def _by_status(self, pattern: str, coarse: str) -> str:
        if coarse in self._coarse:
            return coarse
        patterns = self._statuses.setdefault(coarse, set())
        patterns.add(pattern)
        if len(patterns) <= _MOST_STATUSES:
            return pattern
        self._coarse.add(coarse)
        whole = self._groups.setdefault(coarse, ErrorGroup(coarse))
        for one in self._statuses.pop(coarse):
            if one in self._groups:
                whole.absorb(self._groups.pop(one))
        return coarse

    def listed(self) -> list[ErrorGroup]:
        """The most frequent first."""
        return sorted(self._groups.values(), key=lambda g: (-g.count, g.pattern))


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records to list or replay; None matches all. Times are ms since 1970, `until` is exclusive."""

    error: str | None = None
    key: bytes | None = None
    since: int | None = None
    until: int | None = None
    partitions: frozenset[int] | None = None

    def wants(self, record: Record) -> bool:
        if self.partitions is not None and record.partition not in self.partitions:
            return False
        if self.since is not None and record.timestamp < self.since:
            return False
        if self.until is not None and record.timestamp >= self.until:
            return False
        if self.key is not None and record.key != self.key:
            return False
        return self.error is None or self.error.lower() in error_in(record.headers).lower()


class ReplayMarks:
    """Which offsets of a partition were replayed: all below the frontier, and runs beyond it."""

    def __init__(self, frontier: int, runs: Iterable[Run] = ()) -> None:
        self.frontier = frontier
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in runs:
            self.add(first, last)

    def __contains__(self, offset: int) -> bool:
        if offset < self.frontier:
            return True
        at = bisect_right(self._firsts, offset) - 1
        return at >= 0 and offset <= self._lasts[at]

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(zip(self._firsts, self._lasts, strict=True))

    def copy(self) -> ReplayMarks:
        return ReplayMarks(self.frontier, self.runs)

    def add(self, first: int, last: int) -> None:
        """Mark these offsets. Runs that touch are joined, and a run that touches the frontier moves it."""
        first = max(first, self.frontier)
        if last < first:
            return
        begin = bisect_right(self._lasts, first - 2)  # the first run that ends at first - 1 or later
        end = bisect_right(self._firsts, last + 1)  # after the last run that begins at last + 1 or before
        if begin < end:
            first, last = min(first, self._firsts[begin]), max(last, self._lasts[end - 1])
        self._firsts[begin:end], self._lasts[begin:end] = [first], [last]
        if self._firsts[0] <= self.frontier:
            self.frontier = self._lasts[0] + 1
            del self._firsts[0], self._lasts[0]


class ReplayPace:
    """Limits records per second. A pause does not add up to a burst."""

    def __init__(self, rate: float | None, now: float) -> None:
        self._rate = rate
        self._since = now
        self._sent = 0

    def room(self, now: float, most: int) -> int:
        """How many records may be sent now."""
        if self._rate is None:
            return most
        due = int((now - self._since) * self._rate) + 1 - self._sent
        if due > max(1.0, self._rate):  # more than one second's worth: there was a pause
            self._since, self._sent = now, 0
            due = 1
        return max(0, min(most, due))

    def note(self, count: int) -> None:
        self._sent += count

    def wait(self, now: float) -> float:
        """Seconds until there is room again."""
        return 0.0 if self._rate is None else max(0.0, self._since + self._sent / self._rate - now)
