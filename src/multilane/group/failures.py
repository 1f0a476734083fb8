"""A group's failures, from the copies of failed records: failures per second, and the most frequent recent errors.

Thread: none (pure).

A failed call leaves a copy in the retry or the error topic, so both grow with failures. Records retried in place leave
none; records that follow a failed key into the retry topic leave one without having failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from multilane.group.snapshot import GroupSnapshot, PartitionSnapshot
from multilane.types import TopicPartition

_MOST_ERRORS: Final = 3


@dataclass(frozen=True, slots=True)
class Failures:
    """Rates are copies per second; None: not known yet. `errors` are the heads of the newest errors, with their
    counts."""

    retried: float | None = None
    dead: float | None = None
    errors: tuple[tuple[str, int], ...] = ()

    @property
    def rate(self) -> float | None:
        known = [rate for rate in (self.retried, self.dead) if rate is not None]
        return sum(known) if known else None

    @property
    def are_there(self) -> bool:
        return bool(self.rate)


@dataclass(frozen=True, slots=True)
class AppFailures:
    """Failures as the application itself reports them: totals of its run, failures per second, and the errors of the
    last seconds."""

    settled: int
    failed: int
    retried: int
    dead: int
    rate: float | None = None
    errors: tuple[tuple[str, int], ...] = ()
    is_paused: bool = False  # by an outage; `errors` are then those of the whole run


NO_FAILURES: Final = Failures()


def failures_of(earlier: Sequence[GroupSnapshot], now: GroupSnapshot) -> Failures:
    """`earlier` are snapshots of the same group, the oldest first."""
    if not earlier:
        return NO_FAILURES
    first, subject = earlier[0], now.subject
    seconds = now.at - first.at
    retry = [partition for partition in now.partitions if partition.topic == subject.retry]
    heads: Counter[str] = Counter()
    for snapshot in (*earlier[1:], now):
        heads.update(snapshot.newest)
    return Failures(
        _growth(((first.partitions.get(p), now.partitions[p]) for p in retry), seconds) if subject.retry else None,
        _growth(((first.dead.get(p), now.dead[p]) for p in now.dead), seconds) if subject.error else None,
        tuple(heads.most_common(_MOST_ERRORS)),
    )


def _growth(pairs: Iterable[tuple[PartitionSnapshot | None, PartitionSnapshot]], seconds: float) -> float | None:
    """Growth per second of the partitions that existed before."""
    known = [(b.end, n.end) for b, n in pairs if b is not None and b.end is not None and n.end is not None]
    return sum(max(0, now - before) for before, now in known) / seconds if seconds > 0 else None


def of_copies(snapshot: GroupSnapshot) -> list[TopicPartition]:
    """The partitions with copies of failed records."""
    return [p for p in snapshot.partitions if p.topic == snapshot.subject.retry] + list(snapshot.dead)
