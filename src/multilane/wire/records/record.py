"""One record as a Python object, for code that wants one at a time.

Thread: any (a value).
"""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record that was read.

    Two records are equal when they are the same record of the log: topic, partition and offset; that is also how they
    sort. Its repr tells sizes only, for keys and values do not belong in logs. Nothing here pins the fetch response it
    came from. A tuple beneath, because millions are made: that halves the cost of one.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int  # 0: the producer told the time, 1: the broker did when it appended the record
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (self.offset, self.partition, self.topic) == (other.offset, other.partition, other.topic)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return (
            f"Record({self.topic}-{self.partition}@{self.offset}, timestamp={self.timestamp},"
            f" key={_size(self.key)}, value={_size(self.value)}, headers={len(self.headers)})"
        )


def _size(content: bytes | None) -> str:
    return "null" if content is None else f"{len(content)} bytes"
