"""Validates arguments of public calls: partitions, offsets and times.

Thread: any (pure).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from threading import TIMEOUT_MAX
from typing import Any, Final
from uuid import UUID

from multilane.client.fetch.cursor import At, Lookup
from multilane.client.group.wanted_topics import checked_topic
from multilane.errors import printable
from multilane.types import NO_EPOCH, LeaderEpoch, Offset, OffsetAndMetadata, TopicPartition

_LARGEST_INT32: Final = (1 << 31) - 1
_LARGEST_INT64: Final = (1 << 63) - 1
_LONGEST_TEXT: Final = (1 << 15) - 1


def at_time(timestamp: int) -> Lookup:
    return Lookup(_within("timestamp", timestamp, _LARGEST_INT64, "milliseconds since 1970"), "seek to a time")


def at_offset(offset: int, leader_epoch: int | None = None, topic_id: UUID | None = None) -> At:
    checked = _within("offset", offset, _LARGEST_INT64, "a number from 0; or use seek_to_beginning or seek_to_end")
    if leader_epoch is None:
        return At(Offset(checked), topic_id=topic_id)
    epoch = _within("leader epoch", leader_epoch, _LARGEST_INT32, "a number from 0")
    return At(Offset(checked), LeaderEpoch(epoch), topic_id)


def _within(what: str, value: Any, largest: int, instead: str) -> int:
    """An integer that fits the protocol's field."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # True would be taken for 1
    except TypeError:
        number = None
    if number is None:
        raise ValueError(f"{what} {value!r} is not a whole number: write {instead}")
    if not 0 <= number <= largest:
        raise ValueError(f"{what} {number} is out of range: write {instead}")
    return number


def checked_partition(partition: Any) -> TopicPartition:
    if type(partition) is not TopicPartition and (not isinstance(partition, Sequence) or len(partition) != 2):
        raise ValueError(f"{printable(repr(partition), 80)} is not a partition: write TopicPartition(topic, number)")
    topic = checked_topic(partition[0])
    return TopicPartition(topic, _within(f"partition of {topic}", partition[1], _LARGEST_INT32, "a number from 0"))


def partition_list(partitions: Any) -> list[TopicPartition]:
    """In the order given."""
    if isinstance(partitions, str | bytes | TopicPartition) or not isinstance(partitions, Iterable):
        raise TypeError(f"{_shown(partitions)} is not a list of partitions: write [TopicPartition(topic, number)]")
    return [checked_partition(p) for p in partitions]


def checked_partitions(partitions: Any) -> frozenset[TopicPartition]:
    return frozenset(partition_list(partitions))


def name_list(names: Any, what: str) -> tuple[Any, ...]:
    """Rejects a string, which would be read as a list of letters."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise TypeError(f"{_shown(names)} is not a list of {what}: write ['orders']")
    return tuple(names)


def topic_list(topics: Any) -> tuple[str, ...]:
    return tuple(map(checked_topic, name_list(topics, "topics")))


def checked_callback(callback: Any) -> Any:
    """A later poll() calls it and must not fail because of it."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={_shown(callback)} cannot be called: write a function of (offsets, error)")
    return callback


def by_partition(given: Any, what: str) -> Mapping[Any, Any]:
    if not isinstance(given, Mapping):
        raise TypeError(f"{_shown(given)} does not map partitions to {what}: write {{TopicPartition(topic, 0): ...}}")
    return given


def seconds(timeout: Any) -> float:
    """A timeout that the standard library accepts."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or math.isnan(timeout):
        raise TypeError(f"timeout={_shown(timeout)} is not a number of seconds: write 1.0, or 0 to return at once")
    return min(float(timeout), TIMEOUT_MAX)


def _shown(value: Any) -> str:
    return printable(repr(value), 80)


def checked_commit(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit: plain numbers, or `OffsetAndMetadata` with a leader epoch and the caller's metadata."""
    by_partition(offsets, "the offset")
    checked = {}
    for partition, value in offsets.items():
        wanted = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
        at = at_offset(wanted.offset, None if wanted.leader_epoch == NO_EPOCH else wanted.leader_epoch)
        if not isinstance(wanted.metadata, str):
            raise TypeError(f"the metadata of {partition} is not a string")
        if not _is_short_text(wanted.metadata):
            raise ValueError(f"the metadata of {partition} must be UTF-8 of at most {_LONGEST_TEXT} bytes")
        checked[checked_partition(partition)] = OffsetAndMetadata(at.offset, at.epoch, wanted.metadata, wanted.topic_id)
    return checked


def _is_short_text(text: str) -> bool:
    try:
        return len(text.encode()) <= _LONGEST_TEXT
    except UnicodeEncodeError:
        return False
