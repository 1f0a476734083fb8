"""The offsets of each partition that must have audit records.

Thread: none (pure).

A span begins where the partition was first processed with the audit enabled, and ends at the committed offset: up to
there the group claims to have settled everything. The newest session file contains the beginning as well as the oldest,
so that it does not move when files are deleted. Records removed by retention can no longer be compared, and earlier
records have no audit records; a span reports how many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from multilane.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one partition."""

    begun: int | None  # where its audit records begin
    committed: int | None  # by the group
    log_start: int
    since: int | None = None  # the first requested offset; None: unbounded
    until: int | None = None  # the offset after the last requested one
    is_anchored: bool = True  # `begun` is from session files; else from the first of the remaining files
    reached: int = 0  # the offset after the last audit record
    exists: bool = True  # in the topic


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets [start, end) of a partition. `expired`: offsets before it that are gone from the log. `why`: the reason
    if there is nothing to check."""

    start: int
    end: int
    expired: int = 0
    why: str = ""
    is_hole: bool = False  # records were settled there, without any audit record
    uncovered: int = 0  # requested offsets before it, from before the audit was enabled
    is_loose: bool = False  # its start depends on which files remain
    beyond: int = 0  # offsets between the committed one and the last audit record

    def __len__(self) -> int:
        return max(0, self.end - self.start)


def spans_of(known: Mapping[TopicPartition, Known]) -> dict[TopicPartition, Span]:
    return {partition: replace(_span(one), beyond=_beyond(one)) for partition, one in known.items()}


def _beyond(known: Known) -> int:
    """Settled and not committed: the last commit is to come, or the group was reset."""
    end = max(known.committed or 0, known.log_start)
    return 0 if known.until is not None and known.until <= end else max(0, known.reached - end)


def _span(known: Known) -> Span:
    if not known.exists:
        return Span(0, 0, why="the topic no longer has this partition")
    if known.committed is None:
        return Span(0, 0, why="the group has committed nothing")
    if known.begun is None:
        # A session writes where it begins a partition: either its files are gone, or it was never audited.
        is_hole = known.committed > max(known.log_start, known.since or 0)
        return Span(0, 0, why="it has no audit records", is_hole=is_hole)
    requested = known.since or 0
    first = max(known.begun, requested) if known.is_anchored or known.since is None else requested
    start = max(first, known.log_start)
    end = known.committed if known.until is None else min(known.committed, known.until)
    if end <= first:
        why = ""
        if known.committed < known.begun:
            why = f"offset {known.committed} is committed, and its audit records begin at {known.begun}: was it reset?"
        return Span(start, start, why=why)
    if end <= start:
        return Span(start, start, end - first, "the records with audit records are gone from the log")
    uncovered = max(0, first - max(requested, known.log_start))
    return Span(start, end, start - first, uncovered=uncovered, is_loose=not known.is_anchored and known.since is None)
