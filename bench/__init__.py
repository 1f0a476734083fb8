"""Benchmarks: each is a module with a `main`, a results file and bars that hold or fall short."""
