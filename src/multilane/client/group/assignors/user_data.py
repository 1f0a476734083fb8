"""The user data in the subscriptions of sticky members, in the format of Java's assignors.

Thread: none (pure).

Sticky: an array of (topic, array of partitions), then the generation (not in version 0). Cooperative: the generation.
Another member's bytes are not trusted: unreadable data counts as empty and never raises.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from multilane.client.group.assignors.claims import Ownership
from multilane.types import TopicPartition
from multilane.wire.subscription import NO_GENERATION

_INT: Final = struct.Struct(">i")


def write_ownership(owned: Sequence[TopicPartition], generation: int) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, number in owned:
        by_topic.setdefault(topic, []).append(number)
    parts = [_INT.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}s{len(numbers) + 1}i", len(name), name, len(numbers), *numbers))
    return b"".join([*parts, write_generation(generation)])


def read_ownership(data: bytes) -> Ownership:
    try:
        partitions, rest = _read_partitions(data)
    except (struct.error, ValueError):
        return Ownership()
    return Ownership(partitions, read_generation(rest))


def write_generation(generation: int) -> bytes:
    return _INT.pack(generation)


def read_generation(data: bytes) -> int:
    return int(_INT.unpack_from(data)[0]) if len(data) >= _INT.size else NO_GENERATION


def _read_partitions(data: bytes) -> tuple[tuple[TopicPartition, ...], bytes]:
    """The partitions and the bytes after them. An invalid length raises before anything is allocated for it."""
    found: list[TopicPartition] = []
    (topics,) = _INT.unpack_from(data)
    at = _INT.size
    for _ in range(_length(topics)):
        (size,) = struct.unpack_from(">h", data, at)
        (name,) = struct.unpack_from(f">{_length(size)}s", data, at + 2)
        at += 2 + size
        (count,) = _INT.unpack_from(data, at)
        if _length(count) * _INT.size > len(data) - at - _INT.size:
            raise ValueError(count)
        numbers = struct.unpack_from(f">{count}i", data, at + _INT.size)
        at += _INT.size * (1 + count)
        topic = name.decode(errors="replace")
        found += [TopicPartition(topic, number) for number in numbers]
    return tuple(found), data[at:]


def _length(length: int) -> int:
    if length < 0:
        raise ValueError(length)
    return length
