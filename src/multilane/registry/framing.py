"""Finds the schema id of a payload: in the bytes before it, or in the record's headers.

Thread: none (pure).

Confluent's serialisers write a zero byte and an id of four bytes; Apicurio's write a zero byte and a global id of eight
bytes, or put a global id or a content id into a header and leave the payload as it is. Owns the forms; never shows a
byte of the payload.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from multilane.config.app.registry import APICURIO, CONFLUENT
from multilane.errors import UndecodablePayload

MAGIC: Final = 0
ID_SIZES: Final = {CONFLUENT: 4, APICURIO: 8}
_HEADERS: Final = {"apicurio.value.globalId": "global id", "apicurio.value.contentId": "content id"}
_MOST_INDEXES: Final = 64  # of a Protobuf message: how deep it is nested
_MOST_BITS: Final = 64

Read = Callable[[bytes, int], Any]  # a value, and where its payload begins
RecordHeaders = Sequence[tuple[str, bytes | None]]


class SchemaId(NamedTuple):
    """Ids of different kinds name different schemas."""

    kind: str  # "id" | "global id" | "content id"
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


class Framed(NamedTuple):
    schema: SchemaId
    start: int  # where the payload begins


def framed(value: bytes, headers: RecordHeaders, wire_format: str) -> Framed:
    """The id of a payload's schema. Raises UndecodablePayload."""
    if wire_format == APICURIO:
        for name, content in reversed(headers):
            kind = _HEADERS.get(name)
            if kind is not None and content is not None and len(content) == ID_SIZES[APICURIO]:
                return Framed(SchemaId(kind, int.from_bytes(content, "big")), 0)
    size = ID_SIZES[wire_format]
    if len(value) <= size or value[0] != MAGIC:
        found = "is too short for" if len(value) <= size else "does not begin with"
        raise UndecodablePayload(
            f"its value {found} a zero byte and a schema id of {size} bytes: it was not written with a schema "
            f"registry, or not in the wire format {wire_format}"
        )
    number = int.from_bytes(value[1 : 1 + size], "big")
    return Framed(SchemaId("id" if wire_format == CONFLUENT else "global id", number), 1 + size)


def message_indexes(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Which message of a Protobuf schema the payload is, outermost first, and where it begins. A single zero stands for
    the first message. Raises UndecodablePayload."""
    count, at = _varint(value, start)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise UndecodablePayload(f"its value has {count} message indexes behind the schema id")
    indexes = []
    for _ in range(count):
        index, at = _varint(value, at)
        indexes.append(index)
    return tuple(indexes), at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """A number in zigzag encoding, and where it ends."""
    found = 0
    for shift in range(0, _MOST_BITS, 7):
        if at >= len(value):
            break
        byte = value[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (found >> 1) ^ -(found & 1), at
    raise UndecodablePayload("its value ends within the message indexes behind the schema id")
