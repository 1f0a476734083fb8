"""The Kafka client: one network thread for any number of consumers."""
