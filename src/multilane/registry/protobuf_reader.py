"""Reads Protobuf payloads as messages of the class that protoc generated.

Thread: any.

A Protobuf payload is readable by the field numbers of the reader's own class, so the writer's schema serves for one
check: whether the payload is such a message at all, and not another one of the same schema.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from multilane.errors import UndecodablePayload
from multilane.registry.answers import WriterSchema
from multilane.registry.framing import message_indexes

_TOKENS: Final = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[A-Za-z_][\w.]*|[{};=]""", re.DOTALL
)
_MESSAGE: Final = "message"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def message_reader(message: Any, writer: WriterSchema) -> Callable[[bytes, int], Any]:
    """From a value, and where the message indexes begin, to the message."""
    wanted = message.DESCRIPTOR.full_name
    names = dict(messages_of(writer.text))

    def read(value: bytes, start: int) -> Any:
        indexes, begin = message_indexes(value, start)
        found = names.get(indexes)
        if found != wanted:
            what = f"a {found}" if found else f"no message of that schema (indexes {list(indexes)})"
            raise UndecodablePayload(f"its value is {what} of {writer.name}, but a {wanted} is expected")
        return parse(message, value[begin:])

    return read


def parse(message: Any, content: bytes) -> Any:
    try:
        return message.FromString(content)
    except Exception as error:  # noqa: BLE001 - DecodeError, and others for hostile bytes
        name = message.DESCRIPTOR.full_name
        raise UndecodablePayload(f"its value is not a valid {name} ({type(error).__name__})") from None


def messages_of(text: str) -> Iterator[tuple[tuple[int, ...], str]]:
    """The messages of a schema: indexes, outermost first, and the full name. The schema is a .proto text, or its
    compiled form in base64: Python's serialiser registers that, and not every registry turns it into text."""
    compiled = _compiled(text)
    return _messages_of_text(text) if compiled is None else _nested(compiled.message_type, (), compiled.package)


def _compiled(text: str) -> Any:
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(content)
    except DecodeError:
        return None


def _nested(messages: Any, above: tuple[int, ...], scope: str) -> Iterator[tuple[tuple[int, ...], str]]:
    for index, message in enumerate(messages):
        path, name = (*above, index), f"{scope}.{message.name}" if scope else message.name
        yield path, name
        yield from _nested(message.nested_type, path, name)


def _messages_of_text(text: str) -> Iterator[tuple[tuple[int, ...], str]]:
    package, path = "", []
    counts: list[int] = [0]  # messages so far, for each enclosing block
    names: list[str | None] = []  # of the enclosing blocks; None: not a message
    before = ("", "")
    for word in _TOKENS.findall(text):
        if word.startswith(("//", "/*")):
            continue
        if before[1] == "package" and not names:
            package = word
        elif word == "{":
            is_message = before[0] == _MESSAGE and all(name is not None for name in names)
            if is_message:
                path.append(counts[-1])
                counts[-1] += 1
            names.append(before[1] if is_message else None)
            counts.append(0)
            if is_message:
                yield tuple(path), ".".join([*([package] if package else []), *map(str, names)])
        elif word == "}" and names:
            counts.pop()
            if names.pop() is not None:
                path.pop()
        before = (before[1], word)


def plain(message: Any) -> Any:
    """A message as dicts, lists and plain values: enum values by name, times as datetimes. A field that is not set and
    has presence is None; any other has its default."""
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if name == "google.protobuf.Duration":
        return timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if name.startswith("google.protobuf.") and name.endswith("Value") and "value" in message.DESCRIPTOR.fields_by_name:
        return message.value  # a wrapper of a nullable number or text
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Any, field: Any) -> Any:
    held = getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        value = kind.fields_by_name["value"]
        return {key: _value(held[key], value) for key in held}
    if is_repeated(field):
        return [_value(one, field) for one in held]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(held, field)


def is_repeated(field: Any) -> bool:
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _value(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value
