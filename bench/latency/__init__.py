"""The parts of `bench.spark_latency`."""
