"""Keys with a backlog in the retry topic: their later records follow them there, so that order survives a retry.

Thread: none (pure); one owner, which has a main partition and the retry partition of the same number.

A key is parked while any of its records in the retry partition is not settled. Records of a parked key from the main
topic follow unhandled; records of the retry partition are handled in its order and retried in place, so none of them
has to move. The offsets of the backlog are known from acknowledgements, from reading, and from a scan of the partition
when it is assigned.
"""

from __future__ import annotations

from multilane.wire.records.record import Record


class Parking:
    def __init__(self, retry_topic: str) -> None:
        self.retry_topic = retry_topic
        self._backlog: dict[bytes, set[int]] = {}  # offsets in the retry partition that are not settled

    def __len__(self) -> int:
        """Parked keys."""
        return len(self._backlog)

    def __contains__(self, key: bytes) -> bool:
        return key in self._backlog

    def must_follow(self, record: Record) -> bool:
        return record.topic != self.retry_topic and record.key in self._backlog

    def seen(self, key: bytes | None, offset: int) -> None:
        """The retry partition has a record of this key at this offset. An offset below 0 is not known until the record
        is read: a copy that was stored but whose acknowledgement was lost is acknowledged without its offset."""
        if key is None:
            return
        backlog = self._backlog.setdefault(key, set())
        unknown = [known for known in backlog if known < 0]
        if offset < 0:
            backlog.add(-1 - len(unknown))
            return
        if unknown and offset not in backlog:
            backlog.discard(min(unknown))
        backlog.add(offset)

    def settled(self, record: Record) -> None:
        """A record is settled, in any way."""
        key = record.key
        if key is None or record.topic != self.retry_topic:
            return
        backlog = self._backlog.get(key)
        if backlog is not None:
            backlog.discard(record.offset)
            if not backlog:
                del self._backlog[key]
