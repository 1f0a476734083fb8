"""The gauges of one consumer: what its lanes hold, and how its group is doing.

Thread: loop (the owner of the processors).

A new gauge is defined in `metrics/definitions` and read here; engines report whatever these functions return.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multilane.client.async_consumer import AsyncConsumer
from multilane.errors import GroupError
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.metrics.observer import Gauge
from multilane.types import TopicPartition


def lane_gauges(consumer: str, processors: Iterable[PartitionProcessor]) -> list[Gauge]:
    calls = in_flight = waiting = 0
    for processor in processors:
        calls += processor.calls
        handled = len(processor.in_flight)
        in_flight += handled
        waiting += processor.open_records - handled
    labels = {"consumer": consumer}
    return [
        Gauge("lanes.calls", labels, calls),
        Gauge("lanes.records.in_flight", labels, in_flight),
        Gauge("lanes.records.waiting", labels, max(0, waiting)),
    ]


def group_gauges(consumer: str, member: AsyncConsumer, lags: Mapping[TopicPartition, int | None]) -> list[Gauge]:
    """`lags` of the partitions that are read; None where the end of the log is not known."""
    labels = {"consumer": consumer}
    return [
        Gauge("group.members", labels, int(is_member(member))),
        Gauge("group.partitions", labels, len(lags)),
        *(
            Gauge("partition.lag", {**labels, "topic": topic, "partition": str(partition)}, max(0, lag))
            for (topic, partition), lag in lags.items()
            if lag is not None
        ),
    ]


def is_member(consumer: AsyncConsumer) -> bool:
    try:
        return consumer.group_metadata().identity is not None
    except GroupError:
        return False


def local_lags(
    member: AsyncConsumer, processors: Iterable[PartitionProcessor], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    """From the first unsettled offset to the end of the log, as far as the consumer has seen it; `ends`: up to where it
    has read."""
    lags: dict[TopicPartition, int | None] = {}
    assigned = frozenset(member.assignment)
    for processor in processors:
        for partition in processor.partitions:
            beyond = member.current_lag(partition) if partition in assigned else None
            read_to = ends.get(partition, processor.end(partition))
            lags[partition] = None if beyond is None else beyond + read_to - processor.frontier(partition)
    return lags
