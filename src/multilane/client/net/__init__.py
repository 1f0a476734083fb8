"""Sockets: from a request that waits to the bytes on the wire."""
