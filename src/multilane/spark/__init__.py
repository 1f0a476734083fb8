"""Multilane on Spark: `format("multilane")` reads and writes Kafka as Arrow columns, without a jar.

Whoever has installed multilane beside PySpark can use the format at once (see `pyspark_multilane`).
"""

from multilane.spark.writing import write

__all__ = ["write"]
