"""Multilane on Spark: `format("multilane")` reads and writes Kafka as Arrow columns, without a jar.

PySpark finds the format by itself where multilane is installed beside it (see `pyspark_multilane`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multilane.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from multilane.engines.dataframe.rows.driver import lanes
    from multilane.spark.query_listener import QueryListener, listening
    from multilane.spark.source import KafkaSource
    from multilane.spark.writing import write

_HOMES = {
    "KafkaSource": "multilane.spark.source",
    "QueryListener": "multilane.spark.query_listener",
    "lanes": "multilane.engines.dataframe.rows.driver",
    "listening": "multilane.spark.query_listener",
    "write": "multilane.spark.writing",
}

__all__ = ["KafkaSource", "QueryListener", "lanes", "listening", "write"]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
