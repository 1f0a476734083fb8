"""The order in which Java's hash tables list their keys.

Thread: none (pure).

Java's sticky assignors iterate over hash tables to decide which member keeps an extra partition. To decide the same we
need the order, which follows from the keys: by bucket, and within a bucket by insertion. (Java turns long buckets into
trees; that takes eight members in one of 64 buckets and is not implemented.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from multilane.client.group.assignors.values import AssignorMember, utf16
from multilane.types import TopicPartition

_INT = 0xFFFFFFFF
_SMALLEST_TABLE = 16


def string_hash(text: str) -> int:
    """String.hashCode, unsigned."""
    units = utf16(text)
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & _INT
    return value


def partition_hash(partition: TopicPartition) -> int:
    """TopicPartition.hashCode, unsigned."""
    return (31 * (31 + partition.partition) + string_hash(partition.topic)) & _INT


def in_hash_order(members: Sequence[AssignorMember]) -> list[AssignorMember]:
    """The members in the iteration order of a HashMap with their ids as keys, filled in the order given."""
    return sorted(members, key=lambda member: _bucket(string_hash(member.member_id), len(members)))


def first_in_hash_order(partitions: Iterable[TopicPartition], peak: int) -> TopicPartition:
    """The first partition in the iteration order of a HashSet, filled in the order given, that has held `peak` entries:
    it grows and never shrinks."""
    return min(partitions, key=lambda partition: _bucket(partition_hash(partition), peak))


def _bucket(value: int, entries: int) -> int:
    table = _SMALLEST_TABLE
    while entries * 4 > table * 3:
        table *= 2
    return (value ^ value >> 16) & (table - 1)
