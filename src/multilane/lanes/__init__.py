"""Many ordered lanes in each partition: chains of waiting records, yards that hold them, lanes that work them off."""
