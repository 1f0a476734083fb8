"""Audits a consumer: its logs, what its group has committed, and its accounts, compared by Spark.

The composition root of `multilane audit`.

Thread: application.

What can be found out without Spark is found out first: that takes a moment, Spark takes seconds to start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from multilane.audit.books import Books
from multilane.audit.comparison import ComparisonRequest, begun_at, compare, read_accounts
from multilane.audit.doubts import doubts_within
from multilane.audit.folder import AuditFolder, folder_name
from multilane.audit.log_identity import strayed
from multilane.audit.order import OrderRule, order_rule
from multilane.audit.reading import read_books
from multilane.audit.spans import Known, Span, spans_of
from multilane.audit.verdict import AuditVerdict
from multilane.client.admin.admin import Admin
from multilane.config.app.clients import admin_properties, consumer_properties
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.errors import ConfigError, NoHistory
from multilane.secret import without_credentials
from multilane.spark.session import local_slots, one_job
from multilane.spark.topic_frames import kafka_options
from multilane.types import TopicPartition

_SPARKS_NAMES: Final = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True)
class AuditRequest:
    consumer: ConsumerGroupConfig
    cluster: ClusterConfig
    path: str | None = None  # of the accounts, where Spark finds them by another name than the consumer
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
    books: Books = field(default_factory=Books)
    strayed: tuple[str, ...] = ()  # what is said of accounts that are of other logs


def audit_group(request: AuditRequest, tell: Callable[[str], object] = lambda step: None) -> GroupAudit:
    """`tell` hears what is going on."""
    config = request.consumer
    path = _accounts_of(request)
    tell(f"looking at group {config.group_id}")
    known = _known(request)
    tell("checking the account files")
    books = _books(request)
    tell("starting Spark")
    with one_job(request.master, f"multilane audit {config.group_id}", request.conf) as spark:
        tell("reading the accounts")
        accounts = read_accounts(spark, path, books.usable if books.faults and not books.cannot_check else None)
        begun = begun_at(accounts)
        spans = spans_of({p: _with_begin(p, one, begun, books) for p, one in known.items()})
        tell("comparing them with the logs")
        other_logs = strayed(_reading(request), books.logs, spans)
        rule = order_rule(config)
        settings = _settings(request)
        doubts = doubts_within(books.doubts, spans)
        question = ComparisonRequest(spans, settings, rule, config.retry, request.examples, doubts)
        verdict = compare(spark, accounts, question)
    return GroupAudit(config.group_id, _topics(config), spans, rule, verdict, books, other_logs)


def _topics(config: ConsumerGroupConfig) -> tuple[str, ...]:
    return tuple(topic for topic in (config.topic, config.retry) if topic is not None)


def _accounts_of(request: AuditRequest) -> str:
    config = request.consumer
    path = request.path or config.audit
    if path is None:
        raise ConfigError(
            f"consumer {config.name} keeps no accounts: give it a directory with `audit`, and audit what it reads then"
        )
    folder = f"group={folder_name(config.group_id)}"
    if "://" in path:
        return f"{path.rstrip('/')}/{folder}"
    local = Path(path).expanduser() / folder
    if not any(local.glob("day=*/*.parquet")):
        raise NoHistory(f"there are no accounts of group {config.group_id} in {Path(path).expanduser()}: has it run?")
    return str(local.resolve())


def _known(request: AuditRequest) -> dict[TopicPartition, Known]:
    """What brokers know of the group's partitions."""
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
        raise NoHistory(f"group {config.group_id} has committed nothing: there is nothing to audit")

    def at(found: Mapping[TopicPartition, object], asked: int | None, partition: TopicPartition) -> int | None:
        """Where no record is as late, behind all that is there."""
        if asked is None:
            return None
        place = found[partition] or ends[partition]
        return int(getattr(place, "offset", 0))

    made = {}
    for partition in partitions:
        place, start = committed.get(partition), starts[partition]
        made[partition] = Known(
            None,
            None if place is None else int(place.offset),
            0 if start is None else int(start.offset),
            at(since, request.since, partition),
            at(until, request.until, partition),
        )
    return made


def _with_begin(partition: TopicPartition, known: Known, begun: Mapping[TopicPartition, int], books: Books) -> Known:
    """Cards tell where accounts begin. Of an earlier version there are none: there it is the first of what is left, and
    whoever asks for all since a time is taken at his word."""
    told = books.since.get(partition)
    is_anchored = told is not None and not (books.old and known.since is not None)
    return replace(known, begun=begun.get(partition) if told is None else told, is_anchored=is_anchored)


def _books(request: AuditRequest) -> Books:
    """By Arrow's name for the directory, which may be another than Spark's."""
    config = request.consumer
    path = request.path or config.audit or ""
    scheme = path.partition("://")[0]
    if scheme in _SPARKS_NAMES:
        path = path.replace(scheme, _SPARKS_NAMES[scheme], 1)
    try:
        return read_books(AuditFolder(path, config.group_id), config.group_id)
    except (OSError, ValueError, ImportError) as error:
        told = without_credentials(str(error))
        return Books(faults=(f"cannot check whether all files are there: {told}",), cannot_check=True)


def _reading(request: AuditRequest) -> dict[str, object]:
    """A consumer that is a member of no group."""
    properties = consumer_properties(request.consumer, request.cluster)
    return {key: value for key, value in properties.items() if not key.startswith("group.")}


def _settings(request: AuditRequest) -> dict[str, str]:
    options = kafka_options(consumer_properties(request.consumer, request.cluster))
    slots = local_slots(request.master)
    if slots is not None:  # a few partitions keep many cores busy too
        options["minPartitions"] = str(slots)
    return options
