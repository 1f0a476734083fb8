"""The DataFrame engine: takes rows of Kafka records, runs them on lanes, and returns the outcome of each.

It has neither a channel nor states: rows go in and outcomes come out of one Spark job, which Spark alone starts,
retries and ends.
"""
