"""Decodes the bytes of a value into the type that a function asks for.

Thread: any (the decoders keep no state; those of `registered` belong to the loop).

bytes and str need no decoder; a format such as Avro is read by its schema (`registered`); everything else is JSON
(`conversion`). Never puts a value into an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from multilane.errors import ConfigError, UndecodablePayload
from multilane.listeners.conversion import converter, nullable_parts, type_name
from multilane.listeners.registered import RegisteredPayloads, format_of
from multilane.registry.schema_registry import SchemaRegistry
from multilane.wire.records.record import Record

Decode = Callable[[Record], Any]


def decoder_for(wanted: Any, registry: SchemaRegistry | None = None) -> Decode:
    """A function from a record to its payload, which raises UndecodablePayload. What is a decoder already stays one."""
    if isinstance(wanted, RegisteredPayloads):
        return wanted
    with_format = format_of(wanted)
    if with_format is not None:
        return RegisteredPayloads(*with_format, registry)
    inner, nullable = nullable_parts(wanted)
    read = _reader(inner)

    def decode(record: Record) -> Any:
        value = record.value
        if value is None:
            if nullable:
                return None
            name = type_name(inner)
            raise UndecodablePayload(f"its value is null, but the function takes {name}: annotate {name} | None")
        return read(value)

    return decode


def _reader(wanted: Any) -> Callable[[bytes], Any]:
    if wanted is bytes:
        return bytes
    if wanted is str:
        return _text
    if wanted is Any or wanted is object:
        raise ConfigError(
            "a payload must have a type: bytes, str, dict, a dataclass, a pydantic model, a msgspec struct"
        )
    return converter(wanted, is_json=True)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise UndecodablePayload(f"its value is not UTF-8: {error.reason} at byte {error.start}") from None
