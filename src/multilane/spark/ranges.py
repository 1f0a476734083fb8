"""Ranges of offsets: how much of what is there goes into a batch, and which task reads what.

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
    """What lies between; partitions with nothing have no range."""
    found = (Range(p, starts[p], end) for p, end in sorted(ends.items()) if p in starts)
    return [one for one in found if len(one)]


def admitted(ranges: Iterable[Range], limit: int) -> list[Range]:
    """At most `limit` offsets of them, each in proportion to what it has; none is left out as long as there are as many
    as partitions."""
    known = [one for one in ranges if len(one)]
    total = sum(map(len, known))
    if total <= limit:
        return known
    shares = [min(1, len(one)) if len(known) <= limit else 0 for one in known]
    left = limit - sum(shares)
    wanted = [len(one) - share for one, share in zip(known, shares, strict=True)]
    exact = [left * want / max(1, sum(wanted)) for want in wanted]
    shares = [share + int(more) for share, more in zip(shares, exact, strict=True)]
    # What rounding left over goes to those that lost most by it.
    losers = sorted(range(len(known)), key=lambda i: int(exact[i]) - exact[i])
    for i in losers[: limit - sum(shares)]:
        shares[i] += 1
    return [replace(one, end=one.start + share) for one, share in zip(known, shares, strict=True) if share]


def split(ranges: Iterable[Range], at_least: int) -> list[Range]:
    """As many ranges or more, the largest cut up; so that a partition is read by several tasks."""
    known = list(ranges)
    total = sum(map(len, known))
    if not total or len(known) >= at_least:
        return known
    cut: list[Range] = []
    for one in known:
        parts = min(len(one), -(-at_least * len(one) // total))
        edges = [one.start + len(one) * n // parts for n in range(parts + 1)]
        cut += [Range(one.partition, a, b) for a, b in pairwise(edges)]
    return cut


def cut(ranges: Iterable[Range], at_most: int) -> list[Range]:
    """The same, in pieces of at most so many offsets."""
    return [
        Range(one.partition, begin, min(begin + at_most, one.end))
        for one in ranges
        for begin in range(one.start, one.end, at_most)
    ]


def grouped(ranges: Iterable[Range], at_most: int) -> list[tuple[Range, ...]]:
    """The ranges of each task, as many tasks as ranges but at most so many; even in what they have to read."""
    known = sorted(ranges, key=len, reverse=True)
    if len(known) <= at_most:
        return [(one,) for one in sorted(known)]
    tasks = [(0, n) for n in range(at_most)]
    members: list[list[Range]] = [[] for _ in range(at_most)]
    for one in known:
        load, n = heapq.heappop(tasks)
        members[n].append(one)
        heapq.heappush(tasks, (load + len(one), n))
    return [tuple(sorted(own)) for own in members if own]
