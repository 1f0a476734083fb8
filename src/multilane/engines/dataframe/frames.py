"""Adds lanes to the plan of a DataFrame: checks its columns, puts its rows in order, and maps them to outcomes.

Thread: application (the driver's).

For the order of a key, all records of a Kafka partition must reach one task, in the order of their offsets. Unless the
plan shows that the source's order is intact, rows are shuffled by topic and partition and sorted: by Spark in a batch,
and in the worker in a stream, which Spark does not sort. Never runs a job.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    StringType,
    StructType,
    TimestampType,
)

from multilane.engines.dataframe.lineage import keeps_order, plan_of
from multilane.engines.dataframe.worker import OUTCOMES, StageSpec, serve
from multilane.errors import ConfigError
from multilane.spark.rows import spark_schema
from multilane.wire.records.arrow_rows import HEADERS, NEEDED, TIMESTAMP_TYPE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG_ORDER: Final = ("topic", "partition", "offset")
_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegralType,),
    "offset": (IntegralType,),
    "timestamp": (TimestampType,),
    TIMESTAMP_TYPE: (IntegralType,),
    HEADERS: (ArrayType,),
}


def outcomes_of(frame: DataFrame, spec: StageSpec, *, in_order: bool | None, tasks: int | None) -> DataFrame:
    """A row for each record: its topic, partition and offset, and its outcome."""
    rows = kafka_rows(frame)
    if in_order is None:
        lineage = plan_of(frame)
        in_order = lineage is not None and keeps_order(lineage)
    if not in_order:
        rows = rows.repartition(*(() if tasks is None else (tasks,)), "topic", "partition")
        if not frame.isStreaming:
            rows = rows.sortWithinPartitions(*_LOG_ORDER)
    sorts = not in_order and frame.isStreaming
    return rows.mapInArrow(partial(serve, replace(spec, sorts=sorts)), OUTCOMES)


def kafka_rows(frame: DataFrame) -> DataFrame:
    """The columns of a record, with their types in Spark's Kafka source. Drops other columns."""
    schema = frame.schema
    missing = [name for name in NEEDED if name not in schema.names]
    if missing:
        raise ConfigError(
            f"the DataFrame has no column {', '.join(missing)}: records need {', '.join(NEEDED)}, as in Spark's Kafka "
            "source"
        )
    wanted = spark_schema(include_headers=HEADERS in schema.names)
    for name in wanted.names:
        if name in schema.names and not _fits(name, schema):
            kind, fitting = schema[name].dataType.simpleString(), wanted[name].dataType.simpleString()
            raise ConfigError(f"column {name} is {kind}: records need {fitting}")
    return frame.select(*(F.col(f.name).cast(f.dataType).alias(f.name) for f in wanted if f.name in schema.names))


def _fits(name: str, schema: StructType) -> bool:
    return isinstance(schema[name].dataType, _TYPES[name])
