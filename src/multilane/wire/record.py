"""One record as a Python object, for code that wants one at a time.

Thread: any (a value).
"""

from __future__ import annotations

from typing import Final

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

Headers = tuple[tuple[str, bytes | None], ...]


class Record:
    """A record that was read.

    Two records are equal when they are the same record of the log: topic, partition and offset. Its repr tells sizes
    only, for keys and values do not belong in logs. Nothing here pins the fetch response it came from.
    """

    __slots__ = ("headers", "key", "offset", "partition", "timestamp", "timestamp_type", "topic", "value")

    def __init__(  # noqa: PLR0913, PLR0917 - the fields of a record, positional because millions are built
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (self.offset, self.partition, self.topic) == (other.offset, other.partition, other.topic)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return (
            f"Record({self.topic}-{self.partition}@{self.offset}, timestamp={self.timestamp},"
            f" key={_size(self.key)}, value={_size(self.value)}, headers={len(self.headers)})"
        )


def _size(content: bytes | None) -> str:
    return "null" if content is None else f"{len(content)} bytes"
