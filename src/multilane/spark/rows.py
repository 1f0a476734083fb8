"""Blocks as the rows of Spark's own Kafka source, in Arrow.

Thread: any.

Spark takes a batch unchanged if its columns have exactly the Arrow types that Spark derives from the schema. So Spark
converts the schema, and each block is converted once. Keys and values are copied out of the frame: the JVM reads plain
binaries.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from multilane.wire.records.block import Block

_HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_PLAIN: Final = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)


def spark_schema(*, include_headers: bool) -> StructType:
    return StructType([*_PLAIN, *([StructField("headers", _HEADERS)] if include_headers else [])])


@lru_cache
def arrow_schema(*, include_headers: bool) -> pa.Schema:
    return to_arrow_schema(spark_schema(include_headers=include_headers), timezone="UTC")


def spark_batch(block: Block, *, include_headers: bool) -> pa.RecordBatch:
    schema = arrow_schema(include_headers=include_headers)
    rows = len(block)
    columns = [
        block.keys.cast(pa.binary()),
        block.values.cast(pa.binary()),
        pa.repeat(pa.scalar(block.topic), rows),
        _from_numpy(pa.int32(), np.full(rows, block.partition, np.int32)),
        _from_numpy(pa.int64(), block.offsets.copy()),
        _from_numpy(schema.field("timestamp").type, block.timestamps * 1_000),
        _from_numpy(pa.int32(), block.timestamp_types.astype(np.int32)),
    ]
    if include_headers:
        columns.append(_headers(block, schema.field("headers").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _from_numpy(kind: pa.DataType, column: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(np.ascontiguousarray(column))])


def _headers(block: Block, kind: pa.ListType) -> pa.Array:
    """Null for a row without headers, as in Spark's own source."""
    if block.columns.header_spans is None:
        return pa.nulls(len(block), kind)
    rows = [block.headers(row) for row in range(len(block))]
    pairs = [[{"key": name, "value": content} for name, content in row] or None for row in rows]
    return pa.array(pairs, kind)
