"""Which records of each partition must have an account.

Thread: none (pure).

From where somebody first began to work on the partition with the audit switched on, up to what the group has committed:
that far it claims to have settled everything. Where it first began is told by the youngest session as well as by the
oldest, so that it does not move when files are deleted. What the log has lost since to retention cannot be compared any
more, and what was read before has no accounts; how much that is, is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from multilane.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Known:
    """Of one partition, as far as it is known."""

    begun: int | None  # where its accounts begin
    committed: int | None  # by the group
    log_start: int
    since: int | None = None  # the first offset that is asked for; None: without a bound
    until: int | None = None  # that behind the last
    is_anchored: bool = True  # `begun` is told by cards; else it is where the files that are left begin


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets [start, end) of a partition; `expired` of them before it are gone from the log, `why` tells why there is
    nothing to judge where there is not."""

    start: int
    end: int
    expired: int = 0
    why: str = ""
    is_hole: bool = False  # something was settled there, and nobody wrote anything of it
    uncovered: int = 0  # offsets of the log before it that were asked for, from before there were accounts
    is_loose: bool = False  # where it begins depends on which files are left

    def __len__(self) -> int:
        return max(0, self.end - self.start)


def spans_of(known: Mapping[TopicPartition, Known]) -> dict[TopicPartition, Span]:
    return {partition: _span(one) for partition, one in known.items()}


def _span(known: Known) -> Span:
    if known.committed is None:
        return Span(0, 0, why="the group has committed nothing")
    if known.begun is None:
        # Whoever works on a partition writes where it began: without that its files are gone, or it was never audited.
        is_hole = known.committed > max(known.log_start, known.since or 0)
        return Span(0, 0, why="it has no accounts", is_hole=is_hole)
    asked = known.since or 0
    first = max(known.begun, asked) if known.is_anchored or known.since is None else asked
    start = max(first, known.log_start)
    end = known.committed if known.until is None else min(known.committed, known.until)
    if end <= first:
        return Span(start, start)
    if end <= start:
        return Span(start, start, end - first, "what it has accounts of is gone from the log")
    uncovered = max(0, first - max(asked, known.log_start))
    return Span(start, end, start - first, uncovered=uncovered, is_loose=not known.is_anchored and known.since is None)
