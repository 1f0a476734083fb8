"""The data that members of a classic group exchange through the coordinator: subscriptions and assignments as bytes.

Thread: none (pure).

Both start with a version, and each version only appends to the one before, so a reader reads the fields it knows and
ignores the rest. Another client wrote the bytes: every length is checked against the remaining bytes, and malformed
data raises FrameError. `compose_groups.read_assignment` reads assignments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from multilane.errors import FrameError
from multilane.types import TopicPartition

NEWEST_SUBSCRIPTION: Final = 3
NO_GENERATION: Final = -1

_WITH_OWNED: Final = 1
_WITH_GENERATION: Final = 2
_WITH_RACK: Final = 3
_ASSIGNMENT_VERSION: Final = 0  # newer versions add nothing
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_SMALLEST_TEXT: Final = 2
_SMALLEST_TOPIC: Final = 6  # an empty name and an empty list of partitions


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member's subscribed topics and owned partitions. `generation` is that of its last join, -1 for none."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None


def write_subscription(subscription: MemberSubscription, version: int = NEWEST_SUBSCRIPTION) -> bytes:
    pieces = [_INT16.pack(version), _INT32.pack(len(subscription.topics))]
    pieces += [_text(topic) for topic in subscription.topics]
    pieces.append(_blob(subscription.user_data))
    if version >= _WITH_OWNED:
        pieces.append(_partitions(subscription.owned))
    if version >= _WITH_GENERATION:
        pieces.append(_INT32.pack(subscription.generation))
    if version >= _WITH_RACK:
        pieces.append(_INT16.pack(-1) if subscription.rack is None else _text(subscription.rack))
    return b"".join(pieces)


def read_subscription(data: bytes) -> MemberSubscription:
    reader = _SubscriptionReader(data)
    version = reader.int16()
    if version < 0:
        raise FrameError(f"a member's subscription has version {version}")
    topics = tuple(reader.text() for _ in range(reader.count(_SMALLEST_TEXT)))
    user_data = reader.blob()
    owned: tuple[TopicPartition, ...] = ()
    generation, rack = NO_GENERATION, None
    if version >= _WITH_OWNED:
        owned = reader.partitions()
    if version >= _WITH_GENERATION:
        generation = reader.int32()
    if version >= _WITH_RACK:
        rack = reader.optional_text()
    return MemberSubscription(topics, user_data, owned, generation, rack)


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    return _INT16.pack(_ASSIGNMENT_VERSION) + _partitions(partitions) + _blob(None)


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    pieces = [_INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        pieces += [_text(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(pieces)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _blob(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data


class _SubscriptionReader:
    """Reads forward; FrameError if the bytes end inside a value."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def text(self) -> str:
        return self._decoded(self.int16())

    def optional_text(self) -> str | None:
        length = self.int16()
        return None if length == -1 else self._decoded(length)

    def blob(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else self._take(length)

    def count(self, smallest: int) -> int:
        count = self.int32()
        remaining = len(self._data) - self._at
        if not 0 <= count <= remaining // smallest:
            raise FrameError(f"a member's subscription announces {count} items in {remaining} bytes")
        return count

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self.count(_SMALLEST_TOPIC)):
            topic = self.text()
            numbers = self.count(4)
            found += [TopicPartition(topic, n) for (n,) in _INT32.iter_unpack(self._take(numbers * 4))]
        return tuple(found)

    def _decoded(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise FrameError(f"a member's subscription has text that is not UTF-8: {error}") from None

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if not self._at <= end <= len(self._data):
            raise FrameError(f"a member's subscription ends at byte {len(self._data)}, but {size} more were announced")
        taken, self._at = self._data[self._at : end], end
        return taken
