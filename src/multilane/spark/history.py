"""Reads a topic's history with the multilane source and lets Spark count it.

Thread: application.

The topic is read once. The counts by partition, time slot and key stay in Spark (in memory or on disk). The driver gets
little, however long the topic is: a row for each partition, the heaviest keys, and the arrivals of one slot, up to a
limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from multilane.errors import NoHistory
from multilane.sizing.history import Arrivals, Busiest, HeavyKey, History, PartitionLoad, arrivals_of
from multilane.spark.reasons import plain_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEAVIEST: Final = 20
MOST_ARRIVALS: Final = 20_000
_LONGEST_KEY: Final = 256  # bytes
_IGNORE_DELETED: Final = {
    "failOnDataLoss": "false"
}  # records that retention deletes meanwhile do not matter for a plan


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Selects a topic's records with a timestamp in [since, until), ms since 1970."""

    topic: str
    partitions: int
    settings: Mapping[str, str]  # of the source: brokers and login
    slot: int  # ms
    since: int | None = None
    until: int | None = None


def read_history(spark: SparkSession, query: HistoryQuery) -> History | None:
    """The counts of the topic; None if there is no record."""
    with plain_errors(f"the history of {query.topic}"):
        counted = _counted(spark, query).persist()
        try:
            loads = tuple(_load(row, query) for row in _by_partition(counted).collect())
            if not loads:
                return None
            keys = {row.partition: row.many for row in _key_counts(counted).collect()}
            whole = tuple(replace(load, keys=keys.get(load.partition, 0)) for load in loads)
            heaviest = tuple(_heavy(row) for row in _heaviest(counted).collect())
            (busiest,) = _busiest_of_topic(counted).collect()
        finally:
            counted.unpersist()
    begin = busiest.slot * query.slot
    return History(query.topic, query.partitions, query.slot / 1_000, whole, heaviest, Busiest(busiest.records, begin))


def read_arrivals(spark: SparkSession, query: HistoryQuery, load: PartitionLoad) -> Arrivals:
    """The arrivals in a partition's busiest slot, from its first record on: the time of each, and a number for its
    key."""
    from pyspark.sql import functions as F

    busiest = load.busiest
    options = {
        **query.settings,
        "assign": json.dumps({query.topic: [load.partition]}),
        "startingOffsets": json.dumps({query.topic: {load.partition: busiest.start}}),
        "endingOffsets": json.dumps({query.topic: {load.partition: busiest.end}}),
        **_IGNORE_DELETED,
    }
    with plain_errors(f"the history of {query.topic}"):
        frame = spark.read.format("multilane").options(**options).load()
        time = F.unix_millis("timestamp")
        rows = (
            frame.where((time >= busiest.begin) & (time < busiest.begin + query.slot))
            .orderBy("offset")
            .limit(MOST_ARRIVALS)
            .select(time.alias("time"), F.when(F.col("key").isNotNull(), F.xxhash64("key")).alias("key"))
            .collect()
        )
    if not rows:
        raise NoHistory(f"the records read from {query.topic} have since been deleted from its log: try again")
    return arrivals_of([(row.time, row.key) for row in rows])


# --- counting --------------------------------------------------------------------------------------------------------


def _counted(spark: SparkSession, query: HistoryQuery) -> DataFrame:
    """Records and bytes by partition, slot and key."""
    from pyspark.sql import functions as F

    options = {**query.settings, "subscribe": query.topic, **_IGNORE_DELETED}
    if query.since is not None:
        options |= {"startingTimestamp": str(query.since), "startingOffsetsByTimestampStrategy": "latest"}
    if query.until is not None:
        options |= {"endingTimestamp": str(query.until)}
    frame = spark.read.format("multilane").options(**options).load()
    time = F.unix_millis("timestamp")
    key_size, value_size = (F.coalesce(F.length(name), F.lit(0)) for name in ("key", "value"))
    # Offsets are looked up by time, but producers' timestamps need not rise with the offsets.
    if query.since is not None:
        frame = frame.where(time >= query.since)
    if query.until is not None:
        frame = frame.where(time < query.until)
    return (
        frame.select(
            "partition",
            "key",
            "offset",
            time.alias("time"),
            F.floor(time / query.slot).alias("slot"),
            (key_size + value_size).alias("size"),
        )
        .groupBy("partition", "slot", "key")
        .agg(
            F.count("*").alias("records"),
            F.sum("size").alias("size"),
            F.min("offset").alias("start"),
            F.max("offset").alias("last_offset"),
            F.min("time").alias("first"),
            F.max("time").alias("last"),
        )
    )


def _by_partition(counted: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    unkeyed = F.when(F.col("key").isNull(), F.col("records")).otherwise(0)
    slots = counted.groupBy("partition", "slot").agg(
        F.sum("records").alias("records"),
        F.sum("size").alias("size"),
        F.sum(unkeyed).alias("unkeyed"),
        F.min("start").alias("start"),
        F.max("last_offset").alias("last_offset"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )
    return (
        slots.groupBy("partition")
        .agg(
            F.sum("records").alias("records"),
            F.sum("size").alias("size"),
            F.sum("unkeyed").alias("unkeyed"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
            F.max(F.struct("records", "slot", "start", "last_offset")).alias("busiest"),
        )
        .orderBy("partition")
    )


def _by_key(counted: DataFrame) -> DataFrame:
    """Records by key; null is not a key."""
    from pyspark.sql import functions as F

    keyed = counted.where(F.col("key").isNotNull()).groupBy("partition", "key")
    return keyed.agg(F.sum("records").alias("records"), F.max("records").alias("peak"))


def _key_counts(counted: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return _by_key(counted).groupBy("partition").agg(F.count("*").alias("many"))


def _heaviest(counted: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    ordered = _by_key(counted).orderBy(F.desc("peak"), F.desc("records"), "partition", "key").limit(HEAVIEST)
    return ordered.withColumn("key", F.substring("key", 1, _LONGEST_KEY))


def _busiest_of_topic(counted: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    slots = counted.groupBy("slot").agg(F.sum("records").alias("records"))
    return slots.orderBy(F.desc("records"), F.desc("slot")).limit(1)


# --- rows as values --------------------------------------------------------------------------------------------------


def _load(row: Any, query: HistoryQuery) -> PartitionLoad:
    most = row.busiest
    busiest = Busiest(most.records, most.slot * query.slot, most.start, most.last_offset + 1)
    return PartitionLoad(row.partition, row.records, row.size, 0, row.unkeyed, row.first, row.last, busiest)


def _heavy(row: Any) -> HeavyKey:
    return HeavyKey(row.partition, bytes(row.key), row.records, row.peak)
