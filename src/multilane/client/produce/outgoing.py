"""Outgoing records: their fields, and their conversion for librdkafka.

Thread: any (pure).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

Payload = bytes | bytearray | memoryview | str | None
OutgoingHeaders = Sequence[tuple[str, bytes | str | None]]

_ANY_PARTITION: Final = -1
_NOW: Final = 0
_NOTHING_MORE: Final[Mapping[str, Any]] = {}


class OutgoingRecord(NamedTuple):
    """A record for `send_many`. Text is sent as UTF-8; the timestamp is in ms since 1970 (None: now)."""

    topic: str
    value: Payload = None
    key: Payload = None
    headers: OutgoingHeaders = ()
    partition: int | None = None
    timestamp: int | None = None


def librdkafka_record(
    topic: str,
    value: Payload = None,
    key: Payload = None,
    headers: OutgoingHeaders = (),
    partition: int | None = None,
    timestamp: int | None = None,
) -> tuple[str, bytes | str | None, bytes | str | None, int, Mapping[str, Any]]:
    """The arguments of librdkafka's produce(). One function without calls, because it runs for every record."""
    if partition is None:
        partition = _ANY_PARTITION
    elif partition < 0:
        raise ValueError(f"partition {partition}: write a number from 0, or None")
    if timestamp is not None and timestamp <= 0:
        raise ValueError(f"timestamp {timestamp}: write milliseconds since 1970, or None for now")
    if isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    if isinstance(key, (bytearray, memoryview)):
        key = bytes(key)
    more: Mapping[str, Any] = _NOTHING_MORE
    if headers or timestamp is not None:
        more = {"headers": list(headers), "timestamp": timestamp or _NOW}
    return topic, value, key, partition, more
