"""Compares what is in the logs with what became of it, by Spark.

Thread: application.

The logs are read with our own source, offsets and keys only, and joined with the accounts by their offsets. What comes
to the driver is a row for each partition, and the first few findings of each kind.
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
from multilane.commit.completion_map import Run
from multilane.commit.journal import RecordOutcome
from multilane.spark.reasons import plain_errors
from multilane.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PLACE: Final = ("topic", "partition")
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
    """What is compared."""

    spans: Mapping[TopicPartition, Span]
    settings: Mapping[str, str]  # the source's: brokers and login
    order: OrderRule
    retry: str | None = None  # the group's retry topic
    examples: int = 20  # findings of each kind that are named
    doubts: Mapping[TopicPartition, Sequence[Run]] = field(default_factory=dict)  # begun, perhaps, without an account


def read_accounts(spark: SparkSession, path: str, files: Sequence[str] | None = None) -> DataFrame:
    """All that was written for a group; or these files of it."""
    with plain_errors("the accounts"):
        if files is None:
            return spark.read.schema(_SCHEMA).parquet(path)
        if not files:
            return spark.createDataFrame([], _SCHEMA)
        return spark.read.schema(_SCHEMA).parquet(*(f"{path}/{name}" for name in files))


def begun_at(accounts: DataFrame) -> dict[TopicPartition, int]:
    """Where the accounts of each partition begin."""
    from pyspark.sql import functions as F

    with plain_errors("the accounts"):
        rows = accounts.groupBy(*_PLACE).agg(F.min("offset").alias("first")).collect()
    return {TopicPartition(row.topic, row.partition): row.first for row in rows}


def compare(spark: SparkSession, accounts: DataFrame, question: ComparisonRequest) -> AuditVerdict:
    """Spans without records are left out of it."""
    spans = {partition: span for partition, span in question.spans.items() if len(span)}
    if not spans:
        return AuditVerdict({})
    with plain_errors("what is compared"):
        told = _by_record(_within(spark, accounts, spans))
        compared = _log(spark, spans, question.settings).join(told, [*_RECORD], "full_outer")
        compared = compared.withColumn("doubtful", _is_doubtful(question.doubts)).persist()
        try:
            tallies = {partition: AuditCounts() for partition in spans} | _tallies(compared)
            inverted = _inverted(compared, question)
            if inverted is not None:
                tallies = _with_inverted(tallies, inverted)
            return _named(AuditVerdict(tallies), compared, inverted, question.examples)
        finally:
            compared.unpersist()


def _named(counted: AuditVerdict, compared: DataFrame, inverted: DataFrame | None, most: int) -> AuditVerdict:
    """With examples of what there is: nothing is looked for that was not counted."""
    found = counted.total
    return replace(
        counted,
        unaccounted=_unaccounted(compared, most) if found.unaccounted else (),
        repeated=_repeated(compared, most) if found.repeated else (),
        doubtful=_doubtful(compared, most) if found.doubtful else (),
        inverted=_first_inverted(inverted, most) if found.inverted and inverted is not None else (),
    )


# --- what is compared ------------------------------------------------------------------------------------------------


def _log(spark: SparkSession, spans: Mapping[TopicPartition, Span], settings: Mapping[str, str]) -> DataFrame:
    """The records that are there: aborted ones and markers are none. Of a key only what tells it from others."""
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


def _within(spark: SparkSession, accounts: DataFrame, spans: Mapping[TopicPartition, Span]) -> DataFrame:
    """Of the spans, and of records: not where somebody began."""
    from pyspark.sql import functions as F

    rows = [(topic, partition, span.start, span.end) for (topic, partition), span in spans.items()]
    columns = zip(_BOUNDS, zip(*rows, strict=True), strict=True)  # as columns: rows would go through Python workers
    bounds = spark.createDataFrame(pa.table({name: pa.array(values, kind) for (name, kind), values in columns}))
    of_records = accounts.where(F.col("outcome") != RecordOutcome.BEGUN.value)
    inside = (F.col("offset") >= F.col("span_start")) & (F.col("offset") < F.col("span_end"))
    return of_records.join(F.broadcast(bounds), [*_PLACE]).where(inside).drop("span_start", "span_end")


def _by_record(accounts: DataFrame) -> DataFrame:
    """How often a record was settled, when it was handled first, and what is said of it last."""
    from pyspark.sql import functions as F

    is_account = F.col("outcome") != RecordOutcome.INTERRUPTED.value
    when = F.when(is_account, F.struct("settled_at", "session", "sequence"))
    copy = F.struct("copy_topic", "copy_partition", "copy_offset")
    handled = F.when(F.col("outcome") == RecordOutcome.DONE.value, when)
    one = F.when(is_account, F.struct("session", "sequence"))
    return accounts.groupBy(*_RECORD).agg(
        F.size(F.collect_set(one)).alias("times"),  # small files and merged ones
        F.max_by("outcome", when).alias("outcome"),
        F.max_by(copy, when).alias("copy"),
        F.min(handled).alias("handled"),
        F.max(~is_account).alias("interrupted"),
    )


def _is_doubtful(doubts: Mapping[TopicPartition, Sequence[Run]]) -> Column:
    """Of each record: whether somebody may have begun it who wrote no account of it."""
    from pyspark.sql import functions as F

    found = F.coalesce(F.col("interrupted"), F.lit(False))
    for (topic, partition), runs in doubts.items():
        here = (F.col("topic") == topic) & (F.col("partition") == partition)
        for first, last in runs:
            found |= here & F.col("offset").between(first, last)
    return found


# --- what is found ---------------------------------------------------------------------------------------------------


def _tallies(compared: DataFrame) -> dict[TopicPartition, AuditCounts]:
    from pyspark.sql import functions as F

    def many(condition: Column) -> Column:
        return F.count(F.when(condition, 1))

    def became(outcome: RecordOutcome) -> Column:
        return many(F.col("in_log") & (F.col("outcome") == outcome.value)).alias(outcome.value)

    rows = compared.groupBy(*_PLACE).agg(
        many(F.col("in_log")).alias("read"),
        became(RecordOutcome.DONE),
        became(RecordOutcome.SKIPPED),
        became(RecordOutcome.RETRIED),
        became(RecordOutcome.DEAD),
        many(F.col("in_log") & (F.col("times") > 1)).alias("repeated"),
        many(F.col("in_log") & F.col("doubtful")).alias("doubtful"),
        many(F.col("in_log").isNull() & (F.col("times") > 0)).alias("gone"),
    )
    return {TopicPartition(row.topic, row.partition): _tally(row) for row in rows.collect()}


def _tally(row: Any) -> AuditCounts:
    settled = (row.read, row.done, row.skipped, row.retried, row.dead)
    return AuditCounts(*settled, repeated=row.repeated, doubtful=row.doubtful, gone=row.gone)


def _inverted(compared: DataFrame, question: ComparisonRequest) -> DataFrame | None:
    """Records that were handled before one that came first."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rule = question.order
    if rule.by is None:
        return None
    handled = compared.where(F.col("in_log") & F.col("handled").isNotNull()).select(*_RECORD, "key", "handled")
    if rule.across_retry and question.retry is not None:
        handled = handled.unionByName(_handled_as_copies(compared, question.retry))
    together = [*_PLACE]
    if rule.by == "key":
        handled, together = handled.where(F.col("key").isNotNull()), [*_PLACE, "key"]
    before = Window.partitionBy(*together).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    latest = F.max(F.struct("handled", "offset")).over(before)
    return handled.withColumn("latest", latest).where(F.col("latest.handled") > F.col("handled"))


def _handled_as_copies(compared: DataFrame, retry: str) -> DataFrame:
    """Records of the topic that were handled from the retry topic, at the time when that was."""
    from pyspark.sql import functions as F

    copies = compared.where((F.col("topic") == retry) & F.col("handled").isNotNull()).select(
        F.col("partition").alias("copy_partition"), F.col("offset").alias("copy_offset"), "handled"
    )
    retried = compared.where(
        (F.col("topic") != retry) & F.col("in_log") & F.col("handled").isNull() & (F.col("copy.copy_topic") == retry)
    ).select(*_RECORD, "key", F.col("copy.copy_partition"), F.col("copy.copy_offset"))
    return retried.join(copies, ["copy_partition", "copy_offset"]).select(*_RECORD, "key", "handled")


def _with_inverted(
    tallies: dict[TopicPartition, AuditCounts], inverted: DataFrame
) -> dict[TopicPartition, AuditCounts]:
    rows = inverted.groupBy(*_PLACE).count().collect()
    many = {TopicPartition(row.topic, row.partition): row["count"] for row in rows}
    return {partition: replace(tally, inverted=many.get(partition, 0)) for partition, tally in tallies.items()}


def _in_rows(found: DataFrame, most: int, *alike: str) -> list[Any]:
    """Records that follow each other and are alike, as one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    together = [*_PLACE, *alike]
    number = F.row_number().over(Window.partitionBy(*together).orderBy("offset"))
    rows = found.withColumn("island", F.col("offset") - number).groupBy(*together, "island")
    ranges = rows.agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
    return ranges.orderBy(*_PLACE, "first").limit(most).collect()


def _unaccounted(compared: DataFrame, most: int) -> tuple[Unaccounted, ...]:
    from pyspark.sql import functions as F

    rows = _in_rows(compared.where(F.col("in_log") & (F.coalesce("times", F.lit(0)) == 0)), most)
    return tuple(Unaccounted(TopicPartition(row.topic, row.partition), row.first, row.last) for row in rows)


def _repeated(compared: DataFrame, most: int) -> tuple[Repeated, ...]:
    from pyspark.sql import functions as F

    rows = _in_rows(compared.where(F.col("in_log") & (F.col("times") > 1)), most, "times", "outcome")
    return tuple(Repeated(TopicPartition(r.topic, r.partition), r.first, r.last, r.times, r.outcome) for r in rows)


def _doubtful(compared: DataFrame, most: int) -> tuple[Doubtful, ...]:
    from pyspark.sql import functions as F

    rows = _in_rows(compared.where(F.col("in_log") & F.col("doubtful")), most)
    return tuple(Doubtful(TopicPartition(r.topic, r.partition), r.first, r.last) for r in rows)


def _first_inverted(inverted: DataFrame, most: int) -> tuple[Inverted, ...]:
    rows = inverted.orderBy(*_RECORD).limit(most).collect()
    return tuple(Inverted(TopicPartition(r.topic, r.partition), r.offset, r.latest.offset) for r in rows)
