"""Spark looks through installed packages with this prefix for data sources: so `format("multilane")` needs no
registration."""

from multilane.spark.source import KafkaSource as DefaultSource

__all__ = ["DefaultSource"]
