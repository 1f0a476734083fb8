"""Consumer groups observed from outside: their progress, their rates, and their stalled partitions."""
