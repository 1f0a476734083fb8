"""Record batches into columns."""
