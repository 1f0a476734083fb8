"""What was handed out, what is settled, and the offset that may be committed."""
