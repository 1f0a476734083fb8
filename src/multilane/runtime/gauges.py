"""The gauges of one consumer: what its lanes hold, and how its group is doing.

Thread: loop (the owner of the processors).

A new gauge is defined in `metrics/definitions` and read here; engines report whatever these functions return.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from multilane.client.async_consumer import AsyncConsumer
from multilane.client.sharing import THREADS
from multilane.errors import GroupError
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.shared_processor import SharedProcessor
from multilane.metrics.observer import Gauge
from multilane.runtime.scaling import scaling_unit
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


def age_gauges(consumer: str, processors: Iterable[PartitionProcessor], wall: float) -> list[Gauge]:
    """None if lanes have nothing, or if no record says when it was made, or if they say that it is yet to come."""
    held = (record for each in processors for record in (*each.in_flight, *each.retried.values()))
    oldest = min((record.timestamp for record in held if record.timestamp >= 0), default=None)
    age = None if oldest is None else wall - oldest / 1000
    return [] if age is None or age < 0 else [Gauge("lanes.records.oldest.age", {"consumer": consumer}, age)]


def unit_gauges(
    group: str, lags: Mapping[str, Mapping[TopicPartition, int | None]], retries: Collection[str]
) -> list[Gauge]:
    """Those of a group member as a whole. `lags` of each consumer of this process that the member is for."""
    labels, unit = {"group": group}, scaling_unit(lags, retries)
    gauges = [Gauge("group.triggers", labels, len(lags)), Gauge("scaling.partitions", labels, unit.partitions)]
    return gauges if unit.lag is None else [*gauges, Gauge("scaling.lag", labels, unit.lag)]


def detached_gauges(shared: Iterable[SharedProcessor]) -> list[Gauge]:
    counts: Counter[str] = Counter()
    for processor in shared:
        for trigger in processor.triggers.values():
            counts[trigger.name] += trigger.is_detached
    return [Gauge("group.detached", {"consumer": name}, many) for name, many in counts.items()]


def client_gauges() -> list[Gauge]:
    """Those of all clients of the process: they share threads and connections."""
    threads, connections = THREADS.figures()
    return [Gauge("client.threads", {}, threads), Gauge("client.connections", {}, connections)]


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
