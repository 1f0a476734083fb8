"""Converts a user's properties to typed values: parsing, ranges, and contradicting spellings.

Thread: none (pure).

`read` is the only entry point. Secrets are wrapped as soon as they are read, and no error message repeats the value of
a property that can hold one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from os import PathLike, fspath
from typing import Final

from multilane.config.properties import LONG_MAX, Property, PropertyKind, UsedBy
from multilane.config.spelling import PROPERTIES, Spelling, lookup
from multilane.errors import ConfigError, printable
from multilane.secret import Secret, without_credentials

_NUMBER: Final = re.compile(r"([+-]?\d+)\s*([a-z]*)", re.ASCII)
_MILLIS_UNITS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES_UNITS: Final = {
    "": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20,
    "g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30,
}  # fmt: skip
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SHOWN_MAX: Final = 10**30  # Python refuses to print a number of thousands of digits
_FLAGS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Values:
    """Every property that the wanted clients use, parsed; `given` maps the names that were set to the spelling used."""

    parsed: Mapping[str, object]
    given: Mapping[str, str]
    warnings: tuple[str, ...]

    def text(self, name: str) -> str:
        value = self.parsed[name]
        return value if isinstance(value, str) else ""

    def optional(self, name: str) -> str | None:
        return self.text(name) or None

    def integer(self, name: str) -> int:
        value = self.parsed[name]
        if not isinstance(value, int):
            raise TypeError(name)
        return value

    def seconds(self, name: str) -> float:
        return self.integer(name) / 1_000

    def flag(self, name: str) -> bool:
        return self.parsed[name] is True

    def items(self, name: str) -> tuple[str, ...]:
        value = self.parsed[name]
        return value if isinstance(value, tuple) else ()

    def objects(self, name: str) -> tuple[object, ...]:
        value = self.parsed[name]
        return value if isinstance(value, tuple) else ()

    def secret(self, name: str) -> Secret | None:
        value = self.parsed[name]
        return value if isinstance(value, Secret) else None

    def spelled(self, name: str) -> str:
        """The name as the user wrote it, for error messages."""
        return self.given.get(name, name)


def merged(properties: object, more: Mapping[str, object]) -> dict[str, object]:
    """The properties passed to a client's constructor, as a mapping and as keywords."""
    if properties is None:
        return dict(more)
    if not isinstance(properties, Mapping):
        kind = type(properties).__name__
        raise TypeError(f"properties must be a mapping such as {{'bootstrap.servers': 'localhost:9092'}}, not a {kind}")
    return {**properties, **more}


def read(properties: Mapping[str, object], wanted: frozenset[UsedBy]) -> Values:
    """Parses all properties, or raises the first ConfigError. A value of None counts as not set."""
    parsed = {row.name: row.default for row in PROPERTIES.values() if row.used_by in wanted and not row.refused}
    given: dict[str, str] = {}
    warnings: list[str] = []
    for key, value in properties.items():
        spelling = lookup(key)
        if value is None:
            continue
        row = spelling.row
        _check_allowed(key, row, value, wanted)
        fresh = _parse(key, spelling, value)
        if row.name in given and fresh != parsed[row.name]:
            raise ConfigError(
                f"{given[row.name]} and {key} are spellings of {row.name} with different values; keep one"
            )
        if row.no_effect and row.name not in given:
            warnings.append(f"{key} has no effect: {row.no_effect}")
        given.setdefault(row.name, key)
        parsed[row.name] = fresh
    return Values(parsed, given, tuple(warnings))


def _check_allowed(key: str, row: Property, value: object, wanted: frozenset[UsedBy]) -> None:
    empty = isinstance(value, (str, list, tuple)) and not value
    if row.refused and not empty:
        raise ConfigError(f"{key} is not accepted: {row.refused}")
    if row.used_by not in wanted and not row.refused:
        raise ConfigError(f"{key} is a {row.used_by.value} property and does not apply here")


def _parse(key: str, spelling: Spelling, value: object) -> object:
    row = spelling.row
    if row.refused:
        return None
    if row.no_effect:
        return row.default
    if isinstance(value, Secret) and row.kind is not PropertyKind.SECRET:
        value = value.reveal() if row.kind is PropertyKind.TEXT else value
    return _PARSERS[row.kind](key, spelling, value)


def _wrong(key: str, row: Property, value: object) -> ConfigError:
    wanted = f"one of {', '.join(repr(c) for c in row.choices)}" if row.choices else row.kind.value
    return ConfigError(f"{key}: {_shown(row, value)} is not valid; write {wanted}")


def _shown(row: Property, value: object) -> str:
    if row.kind in (PropertyKind.SECRET, PropertyKind.FUNCTION) or not isinstance(value, (str, int, float, bool)):
        return f"a value of type {type(value).__name__}"
    return repr(printable(without_credentials(str(value)), 80)) if isinstance(value, str) else repr(value)


def _whole(key: str, spelling: Spelling, value: object, units: Mapping[str, int]) -> int:
    row = spelling.row
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise _wrong(key, row, value)
    number = value if isinstance(value, int) else _from_text(key, row, value, units)
    number *= spelling.scale
    low = -LONG_MAX if row.minimum is None else row.minimum
    high = LONG_MAX if row.maximum is None else row.maximum
    if not low <= number <= high:
        unit = spelling.scale
        shown = str(number // unit) if abs(number) < _SHOWN_MAX else "the number"
        raise ConfigError(f"{key}: {shown} is out of range; write a number between {low // unit} and {high // unit}")
    return number


def _from_text(key: str, row: Property, value: str, units: Mapping[str, int]) -> int:
    match = _NUMBER.fullmatch(value.strip().lower()) if len(value) <= 40 else None
    if match is None or match[2] not in units:
        raise _wrong(key, row, value)
    return int(match[1]) * units[match[2]]


def _integer(key: str, spelling: Spelling, value: object) -> int:
    return _whole(key, spelling, value, {"": 1})


def _bytes(key: str, spelling: Spelling, value: object) -> int:
    return _whole(key, spelling, value, _BYTES_UNITS)


def _millis(key: str, spelling: Spelling, value: object) -> int:
    if isinstance(value, timedelta):
        value = value // timedelta(milliseconds=1)
    return _whole(key, spelling, value, _MILLIS_UNITS)


def _flag(key: str, spelling: Spelling, value: object) -> bool:
    if isinstance(value, bool):
        return value
    known = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else None
    if known is None:
        raise _wrong(key, spelling.row, value)
    return known


def _text(key: str, spelling: Spelling, value: object) -> str:
    if isinstance(value, PathLike):
        value = fspath(value)
    if not isinstance(value, str):
        raise _wrong(key, spelling.row, value)
    return _encodable(key, value).strip()


def _encodable(key: str, text: str) -> str:
    """Refuses lone surrogates: the environment has them for bytes that are not UTF-8, and they cannot be sent."""
    if _SURROGATE.search(text) is not None:
        raise ConfigError(f"{key}: the text is not valid Unicode; was it read from bytes that are not UTF-8?")
    return text


def _choice(key: str, spelling: Spelling, value: object) -> str:
    text = _text(key, spelling, value)
    folded = text.upper().replace("-", "_")
    for choice in spelling.row.choices:
        if choice.upper().replace("-", "_") == folded:
            return choice
    raise _wrong(key, spelling.row, value)


def _list(key: str, spelling: Spelling, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise _wrong(key, spelling.row, value)
    return tuple(item.strip() for item in value if item.strip())


def _objects(key: str, spelling: Spelling, value: object) -> tuple[object, ...]:
    """A list whose items may be the application's objects."""
    if isinstance(value, str):
        value = value.split(",")
    items = value if isinstance(value, (list, tuple)) else (value,)
    return tuple(stripped for item in items if (stripped := item.strip() if isinstance(item, str) else item))


def _secret(key: str, spelling: Spelling, value: object) -> Secret:
    secret = Secret(value) if isinstance(value, str) else value
    if not isinstance(secret, Secret):
        raise _wrong(key, spelling.row, value)
    _encodable(key, secret.reveal())
    return secret


def _function(key: str, spelling: Spelling, value: object) -> object:
    if not callable(value):
        raise _wrong(key, spelling.row, value)
    return value


_PARSERS: Final[dict[PropertyKind, Callable[[str, Spelling, object], object]]] = {
    PropertyKind.INTEGER: _integer,
    PropertyKind.BYTES: _bytes,
    PropertyKind.MILLIS: _millis,
    PropertyKind.FLAG: _flag,
    PropertyKind.TEXT: _text,
    PropertyKind.CHOICE: _choice,
    PropertyKind.LIST: _list,
    PropertyKind.OBJECTS: _objects,
    PropertyKind.SECRET: _secret,
    PropertyKind.FUNCTION: _function,
}
