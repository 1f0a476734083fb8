"""The batches flow: a Structured Streaming query whose tasks are lent partitions for a while."""
