"""Compares the logs with the audit records, in Spark.

Thread: application.

Reads the logs with our own source, offsets and keys only, and joins them with the audit records by offset. Never
collects more than a row for each partition, and the first few findings of each kind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from multilane.audit.order import OrderRule
from multilane.audit.spans import Span
from multilane.audit.verdict import AuditCounts, AuditVerdict, Doubtful, Inverted, Repeated, Unaccounted
from multilane.commit.journal import RecordOutcome
from multilane.commit.runs import Run
from multilane.spark.reasons import plain_errors
from multilane.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PARTITION: Final = ("topic", "partition")
_RECORD: Final = ("topic", "partition", "offset")
_BOUNDS: Final = (
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("span_start", pa.int64()),
    ("span_end", pa.int64()),
)
_SCHEMA: Final = (
    "topic string, partition int, offset long, outcome string, settled_at timestamp, session string, sequence long, "
    "copy_topic string, copy_partition int, copy_offset long"
)


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """What to compare."""

    spans: Mapping[TopicPartition, Span]
    settings: Mapping[str, str]  # of the source: brokers and credentials
    order: OrderRule
    retry: str | None = None  # the group's retry topic
    examples: int = 20  # examples of each kind of finding
    doubts: Mapping[TopicPartition, Sequence[Run]] = field(default_factory=dict)  # perhaps begun without a record


def read_audit_records(spark: SparkSession, path: str, files: Sequence[str] | None = None) -> DataFrame:
    """The audit records of a group, or those of the given files."""
    with plain_errors("the audit records"):
        reader = spark.read.schema(_SCHEMA).option("pathGlobFilter", "*.parquet")  # the files that the check reads
        if files is None:
            return reader.parquet(path)
        if not files:
            return spark.createDataFrame([], _SCHEMA)
        return reader.parquet(*(f"{path}/{name}" for name in files))


def offset_ranges(records: DataFrame) -> dict[TopicPartition, range]:
    """Where the audit records of each partition begin, and the offset after the last settled one."""
    from pyspark.sql import functions as F

    with plain_errors("the audit records"):
        marks = [RecordOutcome.BEGUN.value, RecordOutcome.INTERRUPTED.value]
        end = F.max(F.when(~F.col("outcome").isin(marks), F.col("offset") + 1))
        rows = records.groupBy(*_PARTITION).agg(F.min("offset").alias("begin"), end.alias("end")).collect()
    return {TopicPartition(row.topic, row.partition): range(row.begin, row.end or row.begin) for row in rows}


def compare(spark: SparkSession, records: DataFrame, request: ComparisonRequest) -> AuditVerdict:
    """Empty spans are left out of the verdict."""
    spans = {partition: span for partition, span in request.spans.items() if len(span)}
    if not spans:
        return AuditVerdict({})
    with plain_errors("a log or the audit records"):
        settled = _by_offset(_within(spark, records, spans))
        compared = _log(spark, spans, request.settings).join(settled, [*_RECORD], "full_outer")
        compared = compared.withColumn("doubtful", _is_doubtful(request.doubts))
        compared = compared.withColumn("waiting", _is_waiting(spans, request.retry)).persist()
        try:
            counts = {partition: AuditCounts() for partition in spans} | _counts(compared)
            inverted = _inverted(compared, request)
            if inverted is not None:
                counts = _with_inverted(counts, inverted)
            return _with_examples(AuditVerdict(counts), compared, inverted, request.examples)
        finally:
            compared.unpersist()


def _with_examples(counted: AuditVerdict, compared: DataFrame, inverted: DataFrame | None, limit: int) -> AuditVerdict:
    """Add examples of the findings. Runs no query for a finding whose count is 0."""
    found = counted.total
    return replace(
        counted,
        unaccounted=_unaccounted(compared, limit) if found.unaccounted else (),
        repeated=_repeated(compared, limit) if found.repeated else (),
        doubtful=_doubtful(compared, limit) if found.doubtful else (),
        inverted=_first_inverted(inverted, limit) if found.inverted and inverted is not None else (),
    )


# --- input -----------------------------------------------------------------------------------------------------------


def _log(spark: SparkSession, spans: Mapping[TopicPartition, Span], settings: Mapping[str, str]) -> DataFrame:
    """The records in the log, without aborted ones and control records, and a hash of each key."""
    from pyspark.sql import functions as F

    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, partition), span in spans.items():
        assigned.setdefault(topic, []).append(partition)
        starts.setdefault(topic, {})[str(partition)] = span.start
        ends.setdefault(topic, {})[str(partition)] = span.end
    options = {
        **settings,
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
    key = F.when(F.col("key").isNotNull(), F.xxhash64("key")).alias("key")
    frame = spark.read.format("multilane").options(**options).load()
    return frame.select(*_RECORD, key, F.lit(True).alias("in_log"))


def _within(spark: SparkSession, records: DataFrame, spans: Mapping[TopicPartition, Span]) -> DataFrame:
    """The audit records within the spans, without those that only mark a beginning."""
    from pyspark.sql import functions as F

    rows = [(topic, partition, span.start, span.end) for (topic, partition), span in spans.items()]
    columns = zip(_BOUNDS, zip(*rows, strict=True), strict=True)  # as columns: rows would go through Python workers
    bounds = spark.createDataFrame(pa.table({name: pa.array(values, kind) for (name, kind), values in columns}))
    outcomes = records.where(F.col("outcome") != RecordOutcome.BEGUN.value)
    inside = (F.col("offset") >= F.col("span_start")) & (F.col("offset") < F.col("span_end"))
    return outcomes.join(F.broadcast(bounds), [*_PARTITION]).where(inside).drop("span_start", "span_end")


def _by_offset(records: DataFrame) -> DataFrame:
    """How often each offset was settled, when it was first handled, and its last outcome."""
    from pyspark.sql import functions as F

    is_settled = F.col("outcome") != RecordOutcome.INTERRUPTED.value
    when = F.when(is_settled, F.struct("settled_at", "session", "sequence"))
    copy = F.struct("copy_topic", "copy_partition", "copy_offset")
    handled = F.when(F.col("outcome") == RecordOutcome.DONE.value, when)
    number = F.when(is_settled, F.struct("session", "sequence"))
    return records.groupBy(*_RECORD).agg(
        F.size(F.collect_set(number)).alias("times"),  # a set: small files and merged ones have the same records
        F.max_by("outcome", when).alias("outcome"),
        F.max_by(copy, when).alias("copy"),
        F.min(handled).alias("handled"),
        F.max(~is_settled).alias("interrupted"),
    )


def _is_doubtful(doubts: Mapping[TopicPartition, Sequence[Run]]) -> Column:
    """Whether each record may have been begun without an audit record."""
    from pyspark.sql import functions as F

    found = F.coalesce(F.col("interrupted"), F.lit(False))
    for (topic, partition), runs in doubts.items():
        in_partition = (F.col("topic") == topic) & (F.col("partition") == partition)
        for first, last in runs:
            found |= in_partition & F.col("offset").between(first, last)
    return found


def _is_waiting(spans: Mapping[TopicPartition, Span], retry: str | None) -> Column:
    """Whether each record was retried, and its copy is beyond the audited offsets or not in the retry topic."""
    from pyspark.sql import functions as F

    is_audited = F.lit(False)
    for (topic, partition), span in spans.items():
        if topic == retry:
            in_partition = (F.col("copy.copy_topic") == topic) & (F.col("copy.copy_partition") == partition)
            is_audited |= in_partition & (F.col("copy.copy_offset") < span.end)
    is_retried = F.col("outcome") == RecordOutcome.RETRIED.value
    return is_retried & ~F.coalesce(is_audited, F.lit(False))


# --- findings --------------------------------------------------------------------------------------------------------


def _counts(compared: DataFrame) -> dict[TopicPartition, AuditCounts]:
    from pyspark.sql import functions as F

    def count(condition: Column) -> Column:
        return F.count(F.when(condition, 1))

    def with_outcome(outcome: RecordOutcome) -> Column:
        return count(F.col("in_log") & (F.col("outcome") == outcome.value)).alias(outcome.value)

    rows = compared.groupBy(*_PARTITION).agg(
        count(F.col("in_log")).alias("read"),
        with_outcome(RecordOutcome.DONE),
        with_outcome(RecordOutcome.SKIPPED),
        with_outcome(RecordOutcome.RETRIED),
        with_outcome(RecordOutcome.DEAD),
        count(F.col("in_log") & (F.col("times") > 1)).alias("repeated"),
        count(F.col("in_log") & F.col("doubtful")).alias("doubtful"),
        count(F.col("in_log") & F.col("waiting")).alias("waiting"),
        count(F.col("in_log").isNull() & (F.col("times") > 0)).alias("gone"),
    )
    return {TopicPartition(row.topic, row.partition): _counts_of(row) for row in rows.collect()}


def _counts_of(row: Any) -> AuditCounts:
    settled = (row.read, row.done, row.skipped, row.retried, row.dead)
    found = AuditCounts(*settled, repeated=row.repeated, doubtful=row.doubtful)
    return replace(found, waiting=row.waiting, gone=row.gone)


def _inverted(compared: DataFrame, request: ComparisonRequest) -> DataFrame | None:
    """Records that were handled before an earlier one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rule = request.order
    if rule.by is None:
        return None
    handled = compared.where(F.col("in_log") & F.col("handled").isNotNull()).select(*_RECORD, "key", "handled")
    if rule.across_retry and request.retry is not None:
        handled = handled.unionByName(_handled_as_copies(compared, request.retry))
    together = [*_PARTITION]
    if rule.by == "key":
        handled, together = handled.where(F.col("key").isNotNull()), [*_PARTITION, "key"]
    before = Window.partitionBy(*together).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    latest = F.max(F.struct("handled", "offset")).over(before)
    return handled.withColumn("latest", latest).where(F.col("latest.handled") > F.col("handled"))


def _handled_as_copies(compared: DataFrame, retry: str) -> DataFrame:
    """Records of the topic that were handled as copies in the retry topic, with the time of that."""
    from pyspark.sql import functions as F

    copies = compared.where((F.col("topic") == retry) & F.col("handled").isNotNull()).select(
        F.col("partition").alias("copy_partition"), F.col("offset").alias("copy_offset"), "handled"
    )
    retried = compared.where(
        (F.col("topic") != retry) & F.col("in_log") & F.col("handled").isNull() & (F.col("copy.copy_topic") == retry)
    ).select(*_RECORD, "key", F.col("copy.copy_partition"), F.col("copy.copy_offset"))
    return retried.join(copies, ["copy_partition", "copy_offset"]).select(*_RECORD, "key", "handled")


def _with_inverted(counts: dict[TopicPartition, AuditCounts], inverted: DataFrame) -> dict[TopicPartition, AuditCounts]:
    rows = inverted.groupBy(*_PARTITION).count().collect()
    numbers = {TopicPartition(row.topic, row.partition): row["count"] for row in rows}
    return {partition: replace(one, inverted=numbers.get(partition, 0)) for partition, one in counts.items()}


def _ranges(found: DataFrame, limit: int, *same: str) -> list[Any]:
    """Ranges of consecutive records that have the same values in these columns."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    together = [*_PARTITION, *same]
    number = F.row_number().over(Window.partitionBy(*together).orderBy("offset"))
    rows = found.withColumn("island", F.col("offset") - number).groupBy(*together, "island")
    ranges = rows.agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
    return ranges.orderBy(*_PARTITION, "first").limit(limit).collect()


def _unaccounted(compared: DataFrame, limit: int) -> tuple[Unaccounted, ...]:
    from pyspark.sql import functions as F

    rows = _ranges(compared.where(F.col("in_log") & (F.coalesce("times", F.lit(0)) == 0)), limit)
    return tuple(Unaccounted(TopicPartition(row.topic, row.partition), row.first, row.last) for row in rows)


def _repeated(compared: DataFrame, limit: int) -> tuple[Repeated, ...]:
    from pyspark.sql import functions as F

    rows = _ranges(compared.where(F.col("in_log") & (F.col("times") > 1)), limit, "times", "outcome")
    return tuple(Repeated(TopicPartition(r.topic, r.partition), r.first, r.last, r.times, r.outcome) for r in rows)


def _doubtful(compared: DataFrame, limit: int) -> tuple[Doubtful, ...]:
    from pyspark.sql import functions as F

    rows = _ranges(compared.where(F.col("in_log") & F.col("doubtful")), limit)
    return tuple(Doubtful(TopicPartition(r.topic, r.partition), r.first, r.last) for r in rows)


def _first_inverted(inverted: DataFrame, limit: int) -> tuple[Inverted, ...]:
    rows = inverted.orderBy(*_RECORD).limit(limit).collect()
    return tuple(Inverted(TopicPartition(r.topic, r.partition), r.offset, r.latest.offset) for r in rows)
