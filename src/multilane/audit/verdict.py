"""The findings of an audit, and whether they are a proof.

Thread: none (pure values).

The proof holds if every record that the group claims to have settled has an audit record, and no record of a key was
handled before an earlier one. Records that were, or may have been, handled more than once are reported and do not break
it: delivery is at least once, and after a kill they are expected. `exactly_once` makes them break it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from multilane.types import TopicPartition


@dataclass(frozen=True, slots=True)
class AuditCounts:
    """Numbers of records."""

    read: int = 0  # present in the log
    done: int = 0
    skipped: int = 0
    retried: int = 0
    dead: int = 0
    repeated: int = 0  # of those: with more than one audit record
    doubtful: int = 0  # of those: another process may have begun them without writing an audit record
    inverted: int = 0  # of those: handled before an earlier record of their key
    waiting: int = 0  # of the retried: their copies are not within the audited offsets, so nobody has handled them yet
    gone: int = 0  # audit records of records that are no longer in the log (removed by compaction)

    @property
    def accounted(self) -> int:
        return self.done + self.skipped + self.retried + self.dead

    @property
    def unaccounted(self) -> int:
        return self.read - self.accounted

    def __add__(self, other: AuditCounts) -> AuditCounts:
        names = self.__dataclass_fields__
        return AuditCounts(**{name: getattr(self, name) + getattr(other, name) for name in names})


def total(counts: Iterable[AuditCounts]) -> AuditCounts:
    return reduce(AuditCounts.__add__, counts, AuditCounts())


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """Consecutive records that the group has committed, without audit records."""

    partition: TopicPartition
    offset: int
    last: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """Consecutive records with more than one audit record each. `outcome` is that of the last one."""

    partition: TopicPartition
    offset: int
    last: int
    times: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Consecutive records that may have been handled without an audit record, or were interrupted."""

    partition: TopicPartition
    offset: int
    last: int


@dataclass(frozen=True, slots=True)
class Inverted:
    """A record that was handled before `behind`, an earlier record of the same key."""

    partition: TopicPartition
    offset: int
    behind: int


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """The counts cover everything. The examples are the first few of each kind."""

    tallies: dict[TopicPartition, AuditCounts]
    unaccounted: tuple[Unaccounted, ...] = ()
    repeated: tuple[Repeated, ...] = ()
    doubtful: tuple[Doubtful, ...] = ()
    inverted: tuple[Inverted, ...] = ()

    @property
    def total(self) -> AuditCounts:
        return total(self.tallies.values())

    def holds(self, *, exactly_once: bool = False) -> bool:
        found = self.total
        return not (found.unaccounted or found.inverted or (exactly_once and (found.repeated or found.doubtful)))
