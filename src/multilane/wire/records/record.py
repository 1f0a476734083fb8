"""One record as a Python object, for code that handles one at a time.

Thread: any (a value).
"""

from __future__ import annotations

from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record of a log.

    Two records are equal if they are the same record of the log: topic, partition and offset; records also sort by
    these. The repr shows sizes only, because keys and values do not belong in logs. A record does not pin its fetch
    response. It is a named tuple, which halves the cost of creating one: there are millions.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int  # 0: the producer's time, 1: the broker's, when it appended the record
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
