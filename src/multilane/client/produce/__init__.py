"""Producing through librdkafka."""
