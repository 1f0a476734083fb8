"""Many ordered lanes in each partition: chains of waiting records, queues that hold them, lanes that handle them."""
