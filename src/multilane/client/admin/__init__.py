"""Administrative reads over our own wire, and writes through librdkafka."""
