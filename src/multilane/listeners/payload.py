"""Decodes the bytes of a value into the type that a function asks for.

Thread: any (the decoders keep no state).

bytes and str need no decoder. msgspec decodes its structs; pydantic decodes everything else from JSON: its own models,
dataclasses, typed dicts and plain types. Never puts a value into an error, only the path of the field that is wrong.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable
from typing import Any, Final

from multilane.errors import ConfigError, UndecodablePayload
from multilane.wire.records.record import Record

_QUOTED: Final = re.compile(r"'[^']*'")  # msgspec may quote parts of a value

Decode = Callable[[Record], Any]


def decoder_for(wanted: Any) -> Decode:
    """A function from a record to its payload, which raises UndecodablePayload."""
    inner, nullable = _without_none(wanted)
    read = _reader(inner)

    def decode(record: Record) -> Any:
        value = record.value
        if value is None:
            if nullable:
                return None
            raise UndecodablePayload(
                f"its value is null, but the function takes {_name(inner)}: annotate {_name(inner)} | None"
            )
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
    if _is_msgspec(wanted):
        return _msgspec_reader(wanted)
    return _json_reader(wanted)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise UndecodablePayload(f"its value is not UTF-8: {error.reason} at byte {error.start}") from None


def _json_reader(wanted: Any) -> Callable[[bytes], Any]:
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticUserError

    try:
        validate = TypeAdapter(wanted).validate_json
    except PydanticUserError as error:
        raise ConfigError(f"a value cannot be decoded into {_name(wanted)}: {str(error).splitlines()[0]}") from error

    def read(value: bytes) -> Any:
        try:
            return validate(value)
        except ValidationError as error:
            raise UndecodablePayload(f"its value is not a valid {_name(wanted)}: {first_faults(error)}") from None

    return read


def first_faults(error: Any) -> str:
    """The path and message of the first few faults, without the input, which pydantic would show."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    first = ["/".join(map(str, f["loc"])) + (": " if f["loc"] else "") + f["msg"] for f in faults[:3]]
    return "; ".join(first) + (f"; and {len(faults) - 3} more" if len(faults) > 3 else "")


def _is_msgspec(wanted: Any) -> bool:
    return isinstance(wanted, type) and any(c.__module__.split(".")[0] == "msgspec" for c in wanted.__mro__)


def _msgspec_reader(wanted: Any) -> Callable[[bytes], Any]:
    import msgspec

    decode = msgspec.json.Decoder(wanted).decode

    def read(value: bytes) -> Any:
        try:
            return decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            reason = _QUOTED.sub("...", str(error))
            raise UndecodablePayload(f"its value is not a valid {_name(wanted)}: {reason}") from None

    return read


def _without_none(wanted: Any) -> tuple[Any, bool]:
    if typing.get_origin(wanted) in {typing.Union, types.UnionType}:
        others = [a for a in typing.get_args(wanted) if a is not type(None)]
        if len(others) == 1 and len(others) < len(typing.get_args(wanted)):
            return others[0], True
    return wanted, False


def _name(wanted: Any) -> str:
    return getattr(wanted, "__name__", None) or str(wanted)
