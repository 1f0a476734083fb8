"""What an audit found, and whether that is a proof.

Thread: none (pure values).

It holds when every record that the group claims to have settled has an account, and no record of a key was handled
before one that came first. Records that were handled more than once, or may have been, are told and break nothing: at
least once is what is promised, and after a kill they must be there. Whoever wants none of them says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from multilane.types import TopicPartition


@dataclass(frozen=True, slots=True)
class AuditCounts:
    """Numbers of records."""

    read: int = 0  # they are in the log
    done: int = 0
    skipped: int = 0
    retried: int = 0
    dead: int = 0
    repeated: int = 0  # of those: more than one account
    doubtful: int = 0  # of those: somebody else may have begun them, and wrote no account
    inverted: int = 0  # of those: handled before one of their key that came first
    gone: int = 0  # accounts of records that are not in the log (compaction takes them away)

    @property
    def accounted(self) -> int:
        return self.done + self.skipped + self.retried + self.dead

    @property
    def unaccounted(self) -> int:
        return self.read - self.accounted

    def __add__(self, other: AuditCounts) -> AuditCounts:
        names = self.__dataclass_fields__
        return AuditCounts(**{name: getattr(self, name) + getattr(other, name) for name in names})


def total(tallies: Iterable[AuditCounts]) -> AuditCounts:
    return reduce(AuditCounts.__add__, tallies, AuditCounts())


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """Records in a row that are settled, as the group says, and nobody wrote what became of them."""

    partition: TopicPartition
    offset: int
    last: int


@dataclass(frozen=True, slots=True)
class Repeated:
    """Records in a row with more than one account; the last says what became of them."""

    partition: TopicPartition
    offset: int
    last: int
    times: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Records in a row that may have been handled by somebody who wrote no account of it, or was given up."""

    partition: TopicPartition
    offset: int
    last: int


@dataclass(frozen=True, slots=True)
class Inverted:
    """A record that was handled before `behind`, which has the same key and came first."""

    partition: TopicPartition
    offset: int
    behind: int


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """Examples are the first few of each kind; the tallies have all."""

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
