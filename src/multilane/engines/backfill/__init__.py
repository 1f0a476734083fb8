"""A listener over history: a Spark batch job whose tasks work off stretches of partitions, ordered per key."""
