"""The batches flow: a streaming query, whose tasks lease the partitions of one member per group."""
