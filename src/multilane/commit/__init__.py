"""Which offsets were handed out, which are settled, and which offset may be committed."""
