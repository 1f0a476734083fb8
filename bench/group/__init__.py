"""Consumer groups, measured: the parts of `bench.groups`."""
