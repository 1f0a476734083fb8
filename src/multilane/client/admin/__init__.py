"""Administrative reads over multilane's own protocol code, and writes through librdkafka."""
