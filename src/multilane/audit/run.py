"""Audits a consumer: compares its logs, the offsets of its group, and its audit records in Spark.

The composition root of `multilane audit`.

Thread: application.

Checks everything that does not need Spark first: that takes a moment, and Spark takes seconds to start. Never writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from multilane.audit.comparison import ComparisonRequest, compare, offset_ranges, read_audit_records
from multilane.audit.completeness import AuditFiles
from multilane.audit.doubts import doubts_within
from multilane.audit.folder import AuditFolder, folder_name
from multilane.audit.log_identity import strayed
from multilane.audit.order import OrderRule, order_rule
from multilane.audit.reading import read_files
from multilane.audit.spans import Known, Span, spans_of
from multilane.audit.verdict import AuditVerdict
from multilane.client.admin.admin import Admin
from multilane.client.admin.answers import CommittedOffset
from multilane.commit import completion_map
from multilane.config.app.clients import admin_properties, consumer_properties
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.errors import ConfigError, NoHistory
from multilane.secret import without_credentials
from multilane.spark.session import local_slots, one_job
from multilane.spark.topic_frames import kafka_options
from multilane.types import TopicPartition

_ARROW_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}  # by Spark's scheme


@dataclass(frozen=True, slots=True)
class AuditRequest:
    consumer: ConsumerGroupConfig
    cluster: ClusterConfig
    path: str | None = None  # of the audit records, if Spark needs another one than the consumer
    since: int | None = None  # ms since 1970
    until: int | None = None
    examples: int = 20
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupAudit:
    group: str
    topics: tuple[str, ...]
    spans: Mapping[TopicPartition, Span]
    order: OrderRule
    verdict: AuditVerdict
    files: AuditFiles = field(default_factory=AuditFiles)
    strayed: tuple[str, ...] = ()  # a sentence for each partition with audit records of another log


def audit_group(request: AuditRequest, on_step: Callable[[str], object] = lambda step: None) -> GroupAudit:
    """`on_step` is called with the name of each step."""
    config = request.consumer
    path = _records_path(request)
    on_step(f"reading the offsets of group {config.group_id}")
    known = _known(request)
    on_step("checking the audit files")
    files = _files(request)
    on_step("starting Spark")
    with one_job(request.master, f"multilane audit {config.group_id}", request.conf) as spark:
        on_step("reading the audit records")
        records = read_audit_records(spark, path, files.usable if files.faults and not files.cannot_check else None)
        ranges = offset_ranges(records)
        spans = spans_of({p: _with_range(one, ranges.get(p), p, files) for p, one in known.items()})
        on_step("comparing them with the logs")
        other_logs = strayed(_reader_properties(request), files.logs, spans)
        rule = order_rule(config)
        settings = _settings(request)
        doubts = doubts_within(files.doubts, spans)
        comparison = ComparisonRequest(spans, settings, rule, config.retry, request.examples, doubts)
        verdict = compare(spark, records, comparison)
    return GroupAudit(config.group_id, _topics(config), spans, rule, verdict, files, other_logs)


def _topics(config: ConsumerGroupConfig) -> tuple[str, ...]:
    return tuple(topic for topic in (config.topic, config.retry) if topic is not None)


def _records_path(request: AuditRequest) -> str:
    config = request.consumer
    path = request.path or config.audit
    if path is None:
        raise ConfigError(
            f"consumer {config.name} writes no audit records: set `audit` to a directory, then audit the records that "
            "it reads from then on"
        )
    folder = f"group={folder_name(config.group_id)}"
    if "://" in path:
        return f"{path.rstrip('/')}/{folder}"
    local = Path(path).expanduser() / folder
    if not any(local.glob("day=*/*.parquet")):
        raise NoHistory(f"no audit records of group {config.group_id} in {Path(path).expanduser()}: has it run?")
    return str(local.resolve())


def _known(request: AuditRequest) -> dict[TopicPartition, Known]:
    """What the brokers know of the group's partitions."""
    config = request.consumer
    with Admin(admin_properties(request.cluster)) as admin:
        described = admin.topics(_topics(config))
        partitions = [TopicPartition(t, one.number) for t, found in described.items() for one in found.partitions]
        committed = admin.group_offsets(config.group_id)
        starts = admin.offsets(partitions, "earliest")
        since = {} if request.since is None else admin.offsets(partitions, request.since)
        until = {} if request.until is None else admin.offsets(partitions, request.until)
        ends = admin.offsets(partitions, "latest")
    if not committed:
        raise NoHistory(f"group {config.group_id} has no committed offsets: there is nothing to audit")

    def offset_at(found: Mapping[TopicPartition, object], time: int | None, partition: TopicPartition) -> int | None:
        """The offset at a time; the end of the log if no record is that late."""
        if time is None:
            return None
        position = found[partition] or ends[partition]
        return int(getattr(position, "offset", 0))

    known = {}
    for partition in partitions:
        position, start = committed.get(partition), starts[partition]
        known[partition] = Known(
            None,
            None if position is None else _own_offset(position, config.name),
            0 if start is None else int(start.offset),
            offset_at(since, request.since, partition),
            offset_at(until, request.until, partition),
        )
    gone = {p for p in committed if p.topic in described and p not in known}
    return known | {p: Known(None, committed[p].offset, 0, exists=False) for p in gone}


def _own_offset(committed: CommittedOffset, consumer: str) -> int:
    """Up to where this consumer has settled everything: its named position, if it shares the group with others."""
    own = completion_map.read(committed.metadata, committed.offset).positions.get(consumer)
    return int(committed.offset) if own is None else own.offset


def _with_range(known: Known, found: range | None, partition: TopicPartition, files: AuditFiles) -> Known:
    """Session files contain where audit records begin. An earlier version wrote no such files: then they begin with the
    first of the remaining records, or at the time that the user requested."""
    listed = files.since.get(partition)
    is_anchored = listed is not None and not (files.old and known.since is not None)
    begun = listed if listed is not None or found is None else found.start
    return replace(known, begun=begun, is_anchored=is_anchored, reached=0 if found is None else found.stop)


def _files(request: AuditRequest) -> AuditFiles:
    """Check the files by Arrow's URI of the directory, which may differ from Spark's."""
    config = request.consumer
    path = request.path or config.audit or ""
    scheme = path.partition("://")[0]
    if scheme in _ARROW_SCHEMES:
        path = path.replace(scheme, _ARROW_SCHEMES[scheme], 1)
    try:
        return read_files(AuditFolder(path, config.group_id), config.group_id)
    except (OSError, ValueError, ImportError) as error:
        text = without_credentials(str(error))
        return AuditFiles(faults=(f"cannot check whether all files exist: {text}",), cannot_check=True)


def _reader_properties(request: AuditRequest) -> dict[str, object]:
    """Properties of a consumer that joins no group."""
    properties = consumer_properties(request.consumer, request.cluster)
    return {key: value for key, value in properties.items() if not key.startswith("group.")}


def _settings(request: AuditRequest) -> dict[str, str]:
    options = kafka_options(consumer_properties(request.consumer, request.cluster))
    slots = local_slots(request.master)
    if slots is not None:  # so that a few partitions keep many cores busy
        options["minPartitions"] = str(slots)
    return options
