"""What a DataFrame needs for its rows to be records."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from multilane.engines.dataframe.frames import kafka_rows
from multilane.errors import ConfigError
from multilane.spark.rows import spark_schema


def frame_of(fields) -> SimpleNamespace:
    return SimpleNamespace(schema=StructType(list(fields)))


def test_columns_that_are_missing():
    fields = [field for field in spark_schema(include_headers=True) if field.name not in {"offset", "key"}]
    with pytest.raises(ConfigError, match="has no column key, offset: records need key, value, topic"):
        kafka_rows(frame_of(fields))


@pytest.mark.parametrize(
    ("name", "needed"), [("offset", "bigint"), ("partition", "int"), ("timestamp", "timestamp"), ("headers", "array<")]
)
def test_columns_of_another_type(name, needed):
    fields = [f if f.name != name else StructField(name, StringType()) for f in spark_schema(include_headers=True)]
    with pytest.raises(ConfigError, match=f"column {name} is string: records need {needed}"):
        kafka_rows(frame_of(fields))
