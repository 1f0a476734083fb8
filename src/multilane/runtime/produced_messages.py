"""Messages that applications produce, for a topic of the configuration or any other topic, and their bytes.

Thread: none (pure values and functions).

A message is anything with `config_name` and `key`. Its `body` (default: the object itself) is sent unchanged if it is
bytes or text, else as JSON. Never changes the object of the caller: interceptors get a copy that shares only the body.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from multilane.errors import UnsendableRequest

Key = str | bytes | int | None
Header = tuple[str, bytes | str | None]

_AS_TEXT: Final = (Decimal, UUID)
_AS_ISO: Final = (datetime, date, time)
_AS_LIST: Final = (set, frozenset, tuple)


@dataclass(slots=True)
class Message:
    """A message for the topic that the configuration names `config_name`. An empty key is no key."""

    config_name: str
    key: Key = None
    body: Any = None
    headers: list[Header] = field(default_factory=list)


@dataclass(slots=True)
class CustomMessage:
    """A message for any topic of a configured cluster."""

    topic: str
    cluster: str
    key: Key = None
    body: Any = None
    headers: list[Header] = field(default_factory=list)


def copy_of(message: Any) -> Message | CustomMessage:
    """A copy of the message, for interceptors to change."""
    headers = _headers(getattr(message, "headers", None))
    body = message.body if hasattr(message, "body") else message
    config_name = _attribute(message, "config_name")
    if config_name is not None:
        return Message(config_name, _attribute(message, "key"), body, headers)
    topic, cluster = _attribute(message, "topic"), _attribute(message, "cluster")
    if topic is None or cluster is None:
        raise UnsendableRequest(
            f"a {type(message).__name__} cannot be produced: it needs `config_name` (the name of a topic in the "
            "configuration), or `topic` and `cluster`"
        )
    return CustomMessage(topic, cluster, _attribute(message, "key"), body, headers)


def _attribute(message: Any, name: str) -> Any:
    value = getattr(message, name, None)
    return value() if callable(value) else value


def _headers(given: Mapping[str, Any] | Iterable[Header] | None) -> list[Header]:
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    return [(name, value) for name, value in pairs]


def key_bytes(key: Key) -> bytes | None:
    """An empty key is None: the record may go to any partition."""
    if isinstance(key, bytes | bytearray | memoryview):
        return bytes(key) or None
    return None if key is None or key == "" else str(key).encode()


def body_bytes(body: Any) -> bytes | None:
    """Bytes as they are, text as UTF-8, no body as a null value, everything else as JSON."""
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    if isinstance(body, str):
        return body.encode()
    dump = getattr(body, "model_dump_json", None)  # pydantic serializes its own models
    if callable(dump) and not isinstance(body, type):
        return str(dump()).encode()
    if _is_struct(body):
        import msgspec

        return bytes(msgspec.json.encode(body))
    return json.dumps(body, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()


def _is_struct(value: Any) -> bool:
    """Whether it is a msgspec Struct. Does not import msgspec, which may not be installed."""
    return hasattr(type(value), "__struct_fields__")


def _plain(value: Any) -> Any:
    """A JSON value for types that JSON lacks: models and dataclasses within a body, times, sets and exact numbers."""
    simple = _simple(value)
    if simple is not None:
        return simple
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if _is_struct(value):
        return {name: getattr(value, name) for name in type(value).__struct_fields__}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise UnsendableRequest(f"a {type(value).__name__} has no JSON form; pass the body as bytes, or use plain values")


def _simple(value: Any) -> Any:
    if isinstance(value, _AS_ISO):
        return value.isoformat()
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, _AS_LIST):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else None
