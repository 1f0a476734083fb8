"""Lanes, measured: the parts of `bench.lanes`."""
