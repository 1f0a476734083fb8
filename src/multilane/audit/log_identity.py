"""Checks that the audit records of a group belong to the current logs.

Thread: application (blocking).

Audit records contain offsets. A log that was truncated, or deleted and recreated, has other records at the same
offsets, and the old audit records do not apply to them. Audit files list their logs; this module compares them with the
current ones. Owns its consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multilane.audit.completeness import ReadLog
from multilane.audit.spans import Span
from multilane.client.consumer import Consumer
from multilane.commit.log_fit import SettledClaim
from multilane.lanes.log_claims import misfits
from multilane.types import TopicPartition


def strayed(
    properties: Mapping[str, object], logs: Iterable[ReadLog], spans: Mapping[TopicPartition, Span]
) -> tuple[str, ...]:
    """A sentence for each partition that has audit records of another log within its span."""
    wanted: dict[TopicPartition, list[ReadLog]] = {}
    for one in logs:
        span = spans.get(one.partition)
        if span is not None and len(span) and one.end > span.start:
            wanted.setdefault(one.partition, []).append(one)
    found: dict[TopicPartition, str] = {}
    with Consumer(properties) as consumer:
        while wanted:  # one epoch of each partition at a time
            claimed = {partition: some.pop() for partition, some in wanted.items()}
            claims = {partition: SettledClaim(one.end, one.mark) for partition, one in claimed.items()}
            for partition, why in misfits(consumer, claims).items():
                end = claimed[partition].end
                found[partition] = f"{partition}: audit records up to offset {end} are of another log: {why}"
            wanted = {partition: some for partition, some in wanted.items() if some and partition not in found}
    return tuple(found[partition] for partition in sorted(found))
