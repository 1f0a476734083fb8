"""What `bench.spark_latency` is made of."""
