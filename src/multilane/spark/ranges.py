"""Ranges of offsets: how many offsets go into a batch, and which task reads which.

Thread: none (pure).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from multilane.types import TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Offsets [start, end) of a partition."""

    partition: TopicPartition
    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.partition} [{self.start}, {self.end})"


def ranges_between(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[Range]:
    """The ranges between starts and ends; partitions without records have none."""
    found = (Range(p, starts[p], end) for p, end in sorted(ends.items()) if p in starts)
    return [one for one in found if len(one)]


def admitted(ranges: Iterable[Range], limit: int) -> list[Range]:
    """At most `limit` offsets, shared in proportion to what each range has. Every range gets at least one offset if the
    limit allows it."""
    nonempty = [one for one in ranges if len(one)]
    total = sum(map(len, nonempty))
    if total <= limit:
        return nonempty
    shares = [min(1, len(one)) if len(nonempty) <= limit else 0 for one in nonempty]
    spare = limit - sum(shares)
    wanted = [len(one) - share for one, share in zip(nonempty, shares, strict=True)]
    exact = [spare * want / max(1, sum(wanted)) for want in wanted]
    shares = [share + int(more) for share, more in zip(shares, exact, strict=True)]
    # The remainder of the rounding goes to the ranges that lost most by it.
    losers = sorted(range(len(nonempty)), key=lambda i: int(exact[i]) - exact[i])
    for i in losers[: limit - sum(shares)]:
        shares[i] += 1
    return [replace(one, end=one.start + share) for one, share in zip(nonempty, shares, strict=True) if share]


def split(ranges: Iterable[Range], at_least: int) -> list[Range]:
    """At least so many ranges, by cutting up the largest: several tasks may read one partition."""
    whole = list(ranges)
    total = sum(map(len, whole))
    if not total or len(whole) >= at_least:
        return whole
    cut: list[Range] = []
    for one in whole:
        parts = min(len(one), -(-at_least * len(one) // total))
        edges = [one.start + len(one) * n // parts for n in range(parts + 1)]
        cut += [Range(one.partition, a, b) for a, b in pairwise(edges)]
    return cut


def cut(ranges: Iterable[Range], at_most: int) -> list[Range]:
    """The ranges in pieces of at most so many offsets."""
    return [
        Range(one.partition, begin, min(begin + at_most, one.end))
        for one in ranges
        for begin in range(one.start, one.end, at_most)
    ]


def grouped(ranges: Iterable[Range], at_most: int) -> list[tuple[Range, ...]]:
    """The ranges of each task: a task per range, but at most so many, with an even load."""
    largest_first = sorted(ranges, key=len, reverse=True)
    if len(largest_first) <= at_most:
        return [(one,) for one in sorted(largest_first)]
    tasks = [(0, n) for n in range(at_most)]
    members: list[list[Range]] = [[] for _ in range(at_most)]
    for one in largest_first:
        load, n = heapq.heappop(tasks)
        members[n].append(one)
        heapq.heappush(tasks, (load + len(one), n))
    return [tuple(sorted(own)) for own in members if own]
