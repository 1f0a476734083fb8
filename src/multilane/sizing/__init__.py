"""How many lanes, consumers and partitions a topic needs, by simulating its history. Pure."""
