"""Keys with a backlog in the retry topic: their later records follow them there, so that order survives a retry.

Thread: none (pure); one owner, which has a main partition and the retry partition of the same number.

A key is parked while any record of it in the retry partition is not settled. Records of a parked key that come from the
main topic follow without being handled. In the retry partition a record that fails again is copied behind those that
wait after it, so these follow as well: a record there must follow as long as one that belongs before it lies behind it.
What lies where is known by offsets, from acknowledgements, from reading, and from a scan of the partition when it is
assigned.
"""

from __future__ import annotations

from multilane.wire.records.record import Record


class Parking:
    def __init__(self, retry_topic: str) -> None:
        self.retry_topic = retry_topic
        self._backlog: dict[bytes, set[int]] = {}  # offsets in the retry partition that are not settled
        self._overtaken: dict[bytes, list[int]] = {}  # copies of retry records: they belong before what is below them

    def __len__(self) -> int:
        """Parked keys."""
        return len(self._backlog)

    def __contains__(self, key: bytes) -> bool:
        return key in self._backlog

    def must_follow(self, record: Record) -> bool:
        key = record.key
        if key is None or key not in self._backlog:
            return False
        if record.topic != self.retry_topic:
            return True
        copies = self._overtaken.get(key)
        return bool(copies) and record.offset < copies[0]  # type: ignore[index]

    def seen(self, key: bytes | None, offset: int) -> None:
        """The retry partition has a record of this key here."""
        if key is not None:
            self._backlog.setdefault(key, set()).add(offset)

    def copied(self, record: Record, offset: int) -> None:
        """A copy of the record was stored in the retry partition."""
        if record.key is None:
            return
        self.seen(record.key, offset)
        if record.topic == self.retry_topic:
            self._overtaken.setdefault(record.key, []).append(offset)

    def settled(self, record: Record) -> None:
        """A record is done with, in whatever way; tell of its copy first."""
        key = record.key
        if key is None or record.topic != self.retry_topic:
            return
        copies = self._overtaken.get(key)
        if copies and copies[0] == record.offset:
            del copies[0]
            if not copies:
                del self._overtaken[key]
        backlog = self._backlog.get(key)
        if backlog is not None:
            backlog.discard(record.offset)
            if not backlog:
                del self._backlog[key]
