"""How applications run: in this process, and on Spark in batches, continuously, over history or as a DataFrame stage."""
