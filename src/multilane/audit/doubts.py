"""Finds the audited records that may have been handled without an audit record.

Thread: none (pure).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from multilane.audit.completeness import OpenRange
from multilane.audit.spans import Span
from multilane.commit.runs import Run
from multilane.types import TopicPartition

_MAX_RUNS: Final = 256  # over all partitions: each is a term in an expression of Spark
_MAX_RUNS_EACH: Final = 16


def doubts_within(
    doubts: Mapping[str, Iterable[OpenRange]], spans: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, tuple[Run, ...]]:
    """Ranges that cover all of them. Where there are too many ranges, they cover more."""
    found: dict[TopicPartition, list[Run]] = {}
    for one in (one for some in doubts.values() for one in some):
        span = spans.get(one.partition)
        if span is not None and len(span):
            clipped = ((max(first, span.start), min(last, span.end - 1)) for first, last in _unsettled(one))
            found.setdefault(one.partition, []).extend(run for run in clipped if run[0] <= run[1])
    merged = {partition: _merged(runs, _MAX_RUNS_EACH) for partition, runs in found.items() if runs}
    if sum(map(len, merged.values())) > _MAX_RUNS:
        merged = {partition: ((runs[0][0], runs[-1][1]),) for partition, runs in merged.items()}
    return merged


def _unsettled(open_range: OpenRange) -> Iterator[Run]:
    begin = open_range.start
    for first, last in sorted(open_range.settled):
        if begin < first:
            yield begin, min(first, open_range.end) - 1
        begin = max(begin, last + 1)
    if begin < open_range.end:
        yield begin, open_range.end - 1


def _merged(runs: Iterable[Run], limit: int) -> tuple[Run, ...]:
    """Join adjacent runs. Beyond the limit, join the last ones too."""
    merged: list[Run] = []
    for first, last in sorted(runs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    if len(merged) > limit:
        merged[limit - 1 :] = [(merged[limit - 1][0], merged[-1][1])]
    return tuple(merged)
