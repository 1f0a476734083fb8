"""The DataFrame engine: takes rows of Kafka records, runs them on lanes, and returns the outcome of each."""
