"""A real Apache Kafka for development and tests without Docker: jars from a cache, brokers as child processes.

Thread: any; one thread at a time drives a cluster.
"""
