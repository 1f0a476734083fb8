"""Sockets: from a queued request to the bytes on the wire."""
