"""Parts of `bench.sharing`."""
