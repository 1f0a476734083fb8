"""Records for tests, and copies that were read back."""

from __future__ import annotations

from multilane.outcome.next_step import Publish
from multilane.wire.records.record import Headers, Record


def record(topic: str = "orders", headers: Headers = (), **fields: object) -> Record:
    made = Record(topic, 3, 17, 1_000_000, 0, b"k", b"v", headers)
    return made._replace(**fields) if fields else made


def read_back(copy: Publish, offset: int = 0, timestamp: int = 0) -> Record:
    """The copy as its consumer sees it."""
    return Record(copy.topic, copy.partition or 0, offset, timestamp, 0, copy.key, copy.value, copy.headers)
