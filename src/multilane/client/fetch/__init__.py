"""One consumer on the network thread: cursors, look-ups, fetches, and the buffer they fill."""
