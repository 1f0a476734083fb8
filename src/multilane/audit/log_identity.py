"""Whether the accounts of a group are of the logs that are there now.

Thread: application (blocking).

Accounts name offsets. A log that was cut, or deleted and made again, has other records at the same offsets, and the old
accounts say nothing of those. Files say which logs they are of; here that is held against the logs of now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multilane.audit.books import ReadLog
from multilane.audit.spans import Span
from multilane.client.consumer import Consumer
from multilane.commit.log_fit import SettledClaim
from multilane.lanes.log_claims import misfits
from multilane.types import TopicPartition


def strayed(
    properties: Mapping[str, object], logs: Iterable[ReadLog], spans: Mapping[TopicPartition, Span]
) -> tuple[str, ...]:
    """What is said of accounts that are of other logs, as far as these spans have offsets of them."""
    wanted: dict[TopicPartition, list[ReadLog]] = {}
    for one in logs:
        span = spans.get(one.partition)
        if span is not None and len(span) and one.end > span.start:
            wanted.setdefault(one.partition, []).append(one)
    found: dict[TopicPartition, str] = {}
    with Consumer(properties) as consumer:
        while wanted:  # one epoch of each partition at a time
            asked = {partition: some.pop() for partition, some in wanted.items()}
            wrong = misfits(consumer, {partition: SettledClaim(one.end, one.mark) for partition, one in asked.items()})
            found |= {
                p: f"{p}: accounts up to offset {asked[p].end} are of another log: {why}" for p, why in wrong.items()
            }
            wanted = {partition: some for partition, some in wanted.items() if some and partition not in found}
    return tuple(found[partition] for partition in sorted(found))
