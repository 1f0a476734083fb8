"""Bytes to columns and messages, and back. No socket, no thread, no clock."""
