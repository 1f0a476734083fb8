"""Computes a group's partition of `__consumer_offsets`, as brokers do.

Thread: any (pure).
"""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
_SMALLEST_INT: Final = -(1 << 31)


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, in signed 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[at : at + 2], "big")) & 0xFFFF_FFFF
    return found - (1 << 32) if found >= 1 << 31 else found


def offsets_partition(group: str, partitions: int) -> int:
    """`Utils.abs(group.id.hashCode) % offsets.topic.num.partitions`; its leader coordinates the group."""
    if not group:
        raise ValueError("group.id must not be empty")
    if partitions < 1:
        raise ValueError(f"{partitions} partitions: {OFFSETS_TOPIC} has at least one (default: 50)")
    hashed = java_hash(group)
    return 0 if hashed == _SMALLEST_INT else abs(hashed) % partitions
