"""Which records may have been handled without an account, as far as they are audited.

Thread: none (pure).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from multilane.audit.books import Stretch
from multilane.audit.spans import Span
from multilane.commit.completion_map import Run
from multilane.types import TopicPartition

_MOST_RUNS: Final = 256  # of all partitions: each is a term of what Spark compares with
_EACH: Final = 16


def doubts_within(
    doubts: Mapping[str, Iterable[Stretch]], spans: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, tuple[Run, ...]]:
    """In ranges that have all of them, and where there are too many some more."""
    found: dict[TopicPartition, list[Run]] = {}
    for stretch in (stretch for some in doubts.values() for stretch in some):
        span = spans.get(stretch.partition)
        if span is not None and len(span):
            clipped = ((max(first, span.start), min(last, span.end - 1)) for first, last in _unsettled(stretch))
            found.setdefault(stretch.partition, []).extend(run for run in clipped if run[0] <= run[1])
    merged = {partition: _merged(runs, _EACH) for partition, runs in found.items() if runs}
    if sum(map(len, merged.values())) > _MOST_RUNS:
        merged = {partition: ((runs[0][0], runs[-1][1]),) for partition, runs in merged.items()}
    return merged


def _unsettled(stretch: Stretch) -> Iterator[Run]:
    begin = stretch.start
    for first, last in sorted(stretch.settled):
        if begin < first:
            yield begin, min(first, stretch.end) - 1
        begin = max(begin, last + 1)
    if begin < stretch.end:
        yield begin, stretch.end - 1


def _merged(runs: Iterable[Run], most: int) -> tuple[Run, ...]:
    """Those that touch are one; of too many the last ones are."""
    merged: list[Run] = []
    for first, last in sorted(runs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    if len(merged) > most:
        merged[most - 1 :] = [(merged[most - 1][0], merged[-1][1])]
    return tuple(merged)
