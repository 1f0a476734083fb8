"""Multilane on Spark: `format("multilane")` reads and writes Kafka as Arrow columns, without a jar.

PySpark finds the format by itself where multilane is installed beside it (see `pyspark_multilane`).
"""

from multilane.spark.writing import write

__all__ = ["write"]
