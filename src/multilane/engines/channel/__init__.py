"""The channel between a driver and its workers: signed JSON messages over TCP."""
