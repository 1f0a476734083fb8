"""How applications run: in a plain process, or on Spark: in batches, continuously, over history, on a DataFrame."""
