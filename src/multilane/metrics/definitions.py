"""Every metric that multilane reports: name, kind, unit, labels and one sentence.

Thread: none (a constant).

A component may report only what is defined here; a test compares the two, and docs/metrics.md is made from this list
(`make map`). Labels hold no keys, values or credentials.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """`name` is dotted, as observers receive it. `unit` is a word of OpenTelemetry: records, bytes, seconds, 1."""

    name: str
    kind: MetricKind
    unit: str
    labels: tuple[str, ...]
    help: str


def _counter(name: str, unit: str, labels: str, text: str) -> Metric:
    return Metric(name, MetricKind.COUNTER, unit, tuple(labels.split()), text)


def _gauge(name: str, unit: str, labels: str, text: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, unit, tuple(labels.split()), text)


def _duration(name: str, labels: str, text: str) -> Metric:
    return Metric(name, MetricKind.HISTOGRAM, "seconds", tuple(labels.split()), text)


METRICS: Final[tuple[Metric, ...]] = (
    # Lanes
    _duration("lanes.call.duration", "consumer", "Duration of a call of the listener, with one record or one batch."),
    _gauge("lanes.calls", "1", "consumer", "Calls of the listener that run now."),
    _gauge("lanes.records.in_flight", "records", "consumer", "Records that lanes took and have not settled."),
    _gauge("lanes.records.waiting", "records", "consumer", "Records that were polled and wait for a lane."),
    _gauge("lanes.records.oldest.age", "seconds", "consumer", "Age of the oldest record that lanes handle or retry."),
    _counter("lanes.records.received", "records", "consumer", "Records that came to the lanes, some again later."),
    _counter("lanes.records.settled", "records", "consumer", "Records that were settled: handled, copied or skipped."),
    _counter("lanes.records.failed", "records", "consumer topic error", "Records whose call failed."),
    _counter("lanes.records.retried", "records", "consumer", "Failed records that are retried."),
    _counter("lanes.records.repeated", "records", "consumer", "Of the retried records, those retried in place."),
    _counter("lanes.records.followed", "records", "consumer", "Records copied behind an earlier one of their key."),
    _counter("lanes.records.dead", "records", "consumer", "Records that ended in the error topic or the last step."),
    _counter("lanes.records.held", "records", "topic", "Failed records that stay in place during an outage."),
    _counter("lanes.records.kept", "records", "topic", "Failed records without a topic: retried in place."),
    _counter("lanes.records.dropped", "records", "topic", "Failed records that onFailure: drop dropped."),
    _counter("lanes.copies", "records", "topic", "Copies acknowledged by a retry or error topic."),
    _counter("lanes.outage", "1", "consumer state", "Times that an outage paused or resumed a consumer."),
    _counter("lanes.outage.probes", "1", "consumer result", "Records handled as a probe during an outage."),
    # Backfills
    _gauge("backfill.tasks", "1", "consumer", "Tasks of the backfill that are connected."),
    _gauge("backfill.position", "offset", "consumer topic partition", "Offset below which everything is settled."),
    _gauge("backfill.remaining", "records", "consumer topic partition", "Offsets in the range that are not settled."),
    _gauge("backfill.failed", "records", "consumer", "Records listed as failed in this pass."),
    # Error consumers
    _counter("errors.republished", "records", "topic target", "Error records that went back to a topic."),
    _counter("errors.handled", "records", "topic", "Error records that a listener handled."),
    _counter("errors.given_up", "records", "topic", "Error records that exhausted their rounds."),
    _counter("errors.buried", "records", "topic", "Error records moved to the dead topic."),
    _counter("errors.kept", "records", "topic", "Error records that stay where they are."),
    # Groups
    _gauge("group.members", "1", "consumer", "Members of this run that are in the group."),
    _gauge("group.partitions", "partitions", "consumer", "Partitions that the group assigned to members of this run."),
    _gauge("partition.lag", "records", "consumer topic partition", "Offsets from the first unsettled one to the end."),
    _duration("group.rebalance.duration", "group", "From the first sign of a rebalance until this member is done."),
    _counter("group.rebalances", "1", "", "Rebalances of classic groups that this member took part in."),
    _counter("group.fenced", "1", "group", "Times that the coordinator fenced this member."),
    _counter("group.stale", "1", "group", "Times that the application polled too late (max.poll.interval.ms)."),
    _counter("group.lost", "partitions", "", "Partitions lost without a revocation, in classic groups."),
    _counter("sharing.replaced", "1", "consumer", "Times that a shared consumer failed and a new one took its place."),
    _counter("rebalance.step", "1", "change group", "Steps of rebalances: assigned, revoked, lost."),
    _counter("commit.dropped", "partitions", "group", "Partitions dropped from a commit: they were revoked meanwhile."),
    _gauge("group.triggers", "1", "group", "Triggers that share a member of the group, in each of its members."),
    _gauge("group.detached", "partitions", "consumer", "Partitions that a trigger reads on its own: it runs behind."),
    # Scaling
    _gauge("scaling.lag", "records", "group", "Lag of the group, in each partition that of its slowest trigger."),
    _gauge("scaling.partitions", "partitions", "group", "Partitions to handle: more members than these do nothing."),
    # Fetching
    _counter("fetch.bytes", "bytes", "broker", "Bytes of Fetch responses."),
    _counter("fetch.refused", "1", "broker code", "Fetch requests refused as a whole, by error code."),
    _counter("fetch.partition_error", "1", "topic code", "Errors of single partitions in Fetch responses."),
    _counter("fetch.unasked_partition", "1", "broker", "Partitions in a response that were not requested."),
    _counter("fetch.unasked_divergence", "1", "topic", "Diverging epochs in a response that were not expected."),
    _counter("batch.unreadable", "1", "topic", "Record batches that could not be decoded."),
    _counter("partition.stopped", "1", "topic error", "Partitions stopped by an error."),
    _counter("offset.out_of_range", "1", "topic", "Positions outside the log."),
    _counter("log.truncated", "1", "topic", "Logs found truncated below the position."),
    _counter("topic.recreated", "1", "topic", "Topics found deleted and created again."),
    # Connections
    _gauge("client.threads", "1", "", "Network threads, shared by all clients of the process."),
    _gauge("client.connections", "1", "", "Open connections of these threads."),
    _counter("connection.opened", "1", "broker", "Connections established."),
    _counter("connection.failed", "1", "broker error", "Connections that failed, by error class."),
    _counter("login.renewed", "1", "broker", "SASL sessions renewed."),
    _counter("frame.refused", "1", "broker", "Response frames refused as malformed."),
    _counter("throttle.seconds", "seconds", "broker", "Time that brokers throttled this client."),
    _counter("rebootstrap", "1", "", "Times that the client started over from bootstrap.servers."),
    # Spark
    _counter("spark.query.started", "1", "query", "Streaming queries started."),
    _counter("spark.query.ended", "1", "query", "Streaming queries that ended cleanly."),
    _counter("spark.query.failed", "1", "query error", "Streaming queries failed, by Spark's error condition."),
    _counter("spark.query.idle", "1", "query", "Times that a query reported that it is idle."),
    _counter("spark.query.batches", "1", "query", "Batches completed."),
    _counter("spark.query.rows", "rows", "query", "Rows read."),
    _counter("spark.query.batch.seconds", "seconds", "query", "Time spent in batches."),
)
BY_NAME: Final = {metric.name: metric for metric in METRICS}
