"""Avro payloads as Spark columns, decoded in Python workers: Spark's own `from_avro` needs a jar."""
