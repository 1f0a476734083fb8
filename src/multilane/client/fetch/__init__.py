"""One consumer on the network thread: cursors, lookups, fetches, and the buffer they fill."""
