"""Reads the error, the target and the origin of a failed record from its headers: ours, or another framework's.

Thread: none (pure).

Knows Spring's dead-letter headers, whose numbers are big-endian, not text. Never writes them.
"""

from __future__ import annotations

from typing import Final

from multilane.outcome.headers import error_message, last_value, target_topic
from multilane.wire.records.record import Headers

_SPRING: Final = "kafka_dlt-"
_SPRING_TYPES: Final = ("exception-cause-fqcn", "exception-fqcn")
_LONG: Final = 8
_INT: Final = 4


def error_in(headers: Headers) -> str:
    """Type and text of the error that a record carries; empty if it carries none."""
    own = error_message(headers)
    if own is not None:
        return own
    kind = next((text for name in _SPRING_TYPES if (text := _spring_text(headers, name))), None)
    text = _spring_text(headers, "exception-message")
    return ": ".join(part for part in (kind, text) if part)


def target_in(headers: Headers) -> str | None:
    """The topic that a record is to go back to."""
    return target_topic(headers) or _spring_text(headers, "original-topic")


def origin_in(headers: Headers) -> str | None:
    """Where Spring read the record: the topic, with partition and offset if they can be decoded."""
    topic = _spring_text(headers, "original-topic")
    if topic is None:
        return None
    partition = _spring_number(headers, "original-partition", _INT)
    offset = _spring_number(headers, "original-offset", _LONG)
    return topic + ("" if partition is None else f"-{partition}") + ("" if offset is None else f"@{offset}")


def _spring_text(headers: Headers, name: str) -> str | None:
    value = last_value(headers, _SPRING + name)
    return value.decode("utf-8", "replace") if value else None


def _spring_number(headers: Headers, name: str, size: int) -> int | None:
    value = last_value(headers, _SPRING + name)
    return int.from_bytes(value, "big", signed=True) if value is not None and len(value) == size else None
