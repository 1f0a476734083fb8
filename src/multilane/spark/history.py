"""Reads a topic's history with our own source and lets Spark count it.

Thread: application.

The topic is read once. Counted by partition, slot of time and key it stays with Spark (in memory or on disk), and what
comes to the driver is small however long the topic is: a row for each partition, the heaviest keys, and the arrivals of
one slot, up to a bound.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from multilane.errors import NoHistory
from multilane.sizing.history import Arrivals, Busiest, HeavyKey, History, PartitionLoad, arrivals_of
from multilane.spark.reasons import told_plainly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEAVIEST: Final = 20
MOST_ARRIVALS: Final = 20_000
_LONGEST_KEY: Final = 256  # bytes that are shown of one
_CUT_MEANWHILE: Final = {"failOnDataLoss": "false"}  # what retention takes away while it is read is no loss for a plan


@dataclass(frozen=True, slots=True)
class Asked:
    """What is read: a topic's records with a timestamp in [since, until), ms since 1970."""

    topic: str
    partitions: int
    settings: Mapping[str, str]  # the source's: brokers and login
    slot: int  # ms
    since: int | None = None
    until: int | None = None


def read_history(spark: SparkSession, asked: Asked) -> History | None:
    """None where there is no record."""
    with told_plainly(f"the history of {asked.topic}"):
        counted = _counted(spark, asked).persist()
        try:
            loads = tuple(_load(row, asked) for row in _by_partition(counted).collect())
            if not loads:
                return None
            keys = {row.partition: row.many for row in _keys_of_partitions(counted).collect()}
            whole = tuple(replace(load, keys=keys.get(load.partition, 0)) for load in loads)
            heaviest = tuple(_heavy(row) for row in _heaviest(counted).collect())
            (busiest,) = _busiest_of_topic(counted).collect()
        finally:
            counted.unpersist()
    begin = busiest.slot * asked.slot
    return History(asked.topic, asked.partitions, asked.slot / 1_000, whole, heaviest, Busiest(busiest.records, begin))


def read_arrivals(spark: SparkSession, asked: Asked, load: PartitionLoad) -> Arrivals:
    """Of a partition's busiest slot, from its first record on: when each came, and a number for its key."""
    from pyspark.sql import functions as F

    busiest = load.busiest
    options = {
        **asked.settings,
        "assign": json.dumps({asked.topic: [load.partition]}),
        "startingOffsets": json.dumps({asked.topic: {load.partition: busiest.start}}),
        "endingOffsets": json.dumps({asked.topic: {load.partition: busiest.end}}),
        **_CUT_MEANWHILE,
    }
    with told_plainly(f"the history of {asked.topic}"):
        frame = spark.read.format("multilane").options(**options).load()
        time = F.unix_millis("timestamp")
        rows = (
            frame.where((time >= busiest.begin) & (time < busiest.begin + asked.slot))
            .orderBy("offset")
            .limit(MOST_ARRIVALS)
            .select(time.alias("time"), F.when(F.col("key").isNotNull(), F.xxhash64("key")).alias("key"))
            .collect()
        )
    if not rows:
        raise NoHistory(f"what was read of {asked.topic} is gone from its log since: try it again")
    return arrivals_of([(row.time, row.key) for row in rows])


# --- counting --------------------------------------------------------------------------------------------------------


def _counted(spark: SparkSession, asked: Asked) -> DataFrame:
    """How much of each key came to each partition in each slot."""
    from pyspark.sql import functions as F

    options = {**asked.settings, "subscribe": asked.topic, **_CUT_MEANWHILE}
    if asked.since is not None:
        options |= {"startingTimestamp": str(asked.since), "startingOffsetsByTimestampStrategy": "latest"}
    if asked.until is not None:
        options |= {"endingTimestamp": str(asked.until)}
    frame = spark.read.format("multilane").options(**options).load()
    time = F.unix_millis("timestamp")
    key_size, value_size = (F.coalesce(F.length(name), F.lit(0)) for name in ("key", "value"))
    # Offsets are found by times, but times of producers need not rise with them.
    if asked.since is not None:
        frame = frame.where(time >= asked.since)
    if asked.until is not None:
        frame = frame.where(time < asked.until)
    return (
        frame.select(
            "partition",
            "key",
            "offset",
            time.alias("time"),
            F.floor(time / asked.slot).alias("slot"),
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


def _of_keys(counted: DataFrame) -> DataFrame:
    """Null is no key."""
    from pyspark.sql import functions as F

    keyed = counted.where(F.col("key").isNotNull()).groupBy("partition", "key")
    return keyed.agg(F.sum("records").alias("records"), F.max("records").alias("peak"))


def _keys_of_partitions(counted: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return _of_keys(counted).groupBy("partition").agg(F.count("*").alias("many"))


def _heaviest(counted: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    ordered = _of_keys(counted).orderBy(F.desc("peak"), F.desc("records"), "partition", "key").limit(HEAVIEST)
    return ordered.withColumn("key", F.substring("key", 1, _LONGEST_KEY))


def _busiest_of_topic(counted: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    slots = counted.groupBy("slot").agg(F.sum("records").alias("records"))
    return slots.orderBy(F.desc("records"), F.desc("slot")).limit(1)


# --- rows as values --------------------------------------------------------------------------------------------------


def _load(row: Any, asked: Asked) -> PartitionLoad:
    most = row.busiest
    busiest = Busiest(most.records, most.slot * asked.slot, most.start, most.last_offset + 1)
    return PartitionLoad(row.partition, row.records, row.size, 0, row.unkeyed, row.first, row.last, busiest)


def _heavy(row: Any) -> HeavyKey:
    return HeavyKey(row.partition, bytes(row.key), row.records, row.peak)
