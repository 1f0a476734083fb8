"""How many lanes, consumers and partitions a topic needs: what its history tells, simulated and weighed. Pure."""
