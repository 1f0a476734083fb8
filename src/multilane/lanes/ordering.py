"""Ordering keys: functions from a record to the key within which records keep their order.

Thread: none (pure).

By default every key is a chain of its own. `murmur2` and `bytesum` bind a key to one of the lanes instead, as the
virtual partitions of older configurations do: keys that share a lane then wait for each other. Murmur2 is Kafka's own
hash; it is mixed once more, because within a partition the partitioner has left its low bits alike.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from operator import itemgetter
from typing import Final

from multilane.wire.records.record import Record

OrderOf = Callable[[Record], Hashable | None]

_KEY: Final = Record._fields.index("key")
_MASK: Final = 0xFFFFFFFF
_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_GOLDEN: Final = 0x9E3779B1
_REMEMBERED: Final = 65_536


def by_key() -> OrderOf:
    return itemgetter(_KEY)


ONE_CHAIN: Final = "partition"  # the key of every record, where the partition is one chain


def one_chain(record: Record) -> Hashable | None:
    return ONE_CHAIN


def by_partition() -> OrderOf:
    return one_chain


def unordered() -> OrderOf:
    return lambda record: None


def by_lane(lanes: int, lane_of: Callable[[bytes, int], int]) -> OrderOf:
    """Binds each key to a lane. Records without a key have no ordering key."""

    def lane(record: Record) -> int | None:
        key = record.key
        return None if not key else lane_of(key, lanes)

    return lane


def bytesum_lane(key: bytes, lanes: int) -> int:
    return sum(key) % lanes


@lru_cache(_REMEMBERED)
def murmur2_lane(key: bytes, lanes: int) -> int:
    mixed = murmur2(key) * _GOLDEN & _MASK
    return mixed * lanes >> 32


def murmur2(key: bytes) -> int:
    """Kafka's murmur2, unsigned."""
    whole = len(key) & ~3
    hashed = _SEED ^ len(key)
    for index in range(0, whole, 4):
        word = int.from_bytes(key[index : index + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ word
    rest = key[whole:]
    if rest:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def order_of(order_by: str, lane_hash: str, lanes: int) -> OrderOf:
    """The function for a configuration's `orderBy` and `laneHash`. Without lanes the partition is one chain."""
    if lanes == 0 or order_by == "partition":
        return by_partition()
    if order_by == "none":
        return unordered()
    hashes: dict[str, Callable[[bytes, int], int]] = {"murmur2": murmur2_lane, "bytesum": bytesum_lane}
    return by_lane(lanes, hashes[lane_hash]) if lane_hash in hashes else by_key()
