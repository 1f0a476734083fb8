"""The error consumer: reads error topics on a schedule and returns records to their topics."""
