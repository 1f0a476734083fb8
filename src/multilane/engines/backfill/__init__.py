"""The backfill engine: a Spark batch job whose tasks process a topic's history, in order per key."""
