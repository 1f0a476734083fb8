"""Lanes as a stage of a DataFrame: rows of Kafka's records in, what became of each out."""
