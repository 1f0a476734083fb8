"""Keys with a backlog in the retry topic: their later records follow them there, so that order survives a retry.

Thread: none (pure); one owner, which has a main partition and the retry partition of the same number.

A key is parked while any record of it in the retry partition is not settled. Records of a parked key that come from the
main topic follow without being handled; from the retry partition they are handled in its order, each tried again in its
place, so nothing there has to move. What lies there is known by offsets: from acknowledgements, from reading, and from
a scan of the partition when it is assigned.
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
        """The retry partition has a record of this key here. An offset below 0: somewhere, it will be told when it is
        read (a copy that was stored and whose acknowledgement was lost is acknowledged without its place)."""
        if key is None:
            return
        backlog = self._backlog.setdefault(key, set())
        unplaced = [known for known in backlog if known < 0]
        if offset < 0:
            backlog.add(-1 - len(unplaced))
            return
        if unplaced and offset not in backlog:
            backlog.discard(min(unplaced))
        backlog.add(offset)

    def settled(self, record: Record) -> None:
        """A record is done with, in whatever way."""
        key = record.key
        if key is None or record.topic != self.retry_topic:
            return
        backlog = self._backlog.get(key)
        if backlog is not None:
            backlog.discard(record.offset)
            if not backlog:
                del self._backlog[key]
