"""Makes the type that a function asks for, from JSON or from plain Python values.

Thread: any (the converters keep no state).

msgspec makes its structs; pydantic makes everything else: its own models, dataclasses, typed dicts and plain types.
Never puts a value into an error, only the path of the field that is wrong.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable
from typing import Any, Final

from multilane.errors import ConfigError, UndecodablePayload

_QUOTED: Final = re.compile(r"'[^']*'")  # msgspec may quote parts of a value
_PLAIN: Final = (dict, dict[str, Any])


def converter(wanted: Any, *, is_json: bool) -> Callable[[Any], Any]:
    """From the bytes of a JSON text, or from plain values. It raises UndecodablePayload."""
    if _is_msgspec(wanted):
        return _msgspec_converter(wanted, is_json=is_json)
    if not is_json and wanted in _PLAIN:
        return _itself
    return _pydantic_converter(wanted, is_json=is_json)


def _itself(value: Any) -> Any:
    return value


def _pydantic_converter(wanted: Any, *, is_json: bool) -> Callable[[Any], Any]:
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticUserError

    try:
        adapter = TypeAdapter(wanted)
        validate = adapter.validate_json if is_json else adapter.validate_python
    except PydanticUserError as error:
        raise ConfigError(
            f"a value cannot be decoded into {type_name(wanted)}: {str(error).splitlines()[0]}"
        ) from error

    def convert(value: Any) -> Any:
        try:
            return validate(value)
        except ValidationError as error:
            raise UndecodablePayload(f"its value is not a valid {type_name(wanted)}: {first_faults(error)}") from None

    return convert


def first_faults(error: Any) -> str:
    """The path and message of the first few faults, without the input, which pydantic would show."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    first = ["/".join(map(str, f["loc"])) + (": " if f["loc"] else "") + f["msg"] for f in faults[:3]]
    return "; ".join(first) + (f"; and {len(faults) - 3} more" if len(faults) > 3 else "")


def _is_msgspec(wanted: Any) -> bool:
    return isinstance(wanted, type) and any((c.__module__ or "").split(".")[0] == "msgspec" for c in wanted.__mro__)


def _msgspec_converter(wanted: Any, *, is_json: bool) -> Callable[[Any], Any]:
    import msgspec

    make = msgspec.json.Decoder(wanted).decode if is_json else lambda value: msgspec.convert(value, wanted)

    def convert(value: Any) -> Any:
        try:
            return make(value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            reason = _QUOTED.sub("...", str(error))
            raise UndecodablePayload(f"its value is not a valid {type_name(wanted)}: {reason}") from None

    return convert


def nullable_parts(wanted: Any) -> tuple[Any, bool]:
    """The type without None, and whether it allows None."""
    if typing.get_origin(wanted) in {typing.Union, types.UnionType}:
        others = [a for a in typing.get_args(wanted) if a is not type(None)]
        if len(others) == 1 and len(others) < len(typing.get_args(wanted)):
            return others[0], True
    return wanted, False


def type_name(wanted: Any) -> str:
    return getattr(wanted, "__name__", None) or str(wanted)
