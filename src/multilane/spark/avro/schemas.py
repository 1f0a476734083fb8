"""Avro schemas as a user gives them, read and checked; and as they are decoded with: without logical types.

Thread: any. Reads files.

What a logical type means is decided by the columns (see `shapes`): the library's own Python values for them cost more,
have a smaller range and round. So it is given schemas of plain types only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from multilane.errors import ConfigError

# What a schema says of a value, and not of its bytes.
_LOGICAL: Final = frozenset({"logicalType", "precision", "scale"})


@dataclass(frozen=True, slots=True)
class Parsed:
    """A schema with full names, and the types that it names."""

    schema: Any
    named: Mapping[str, Any]


def fastavro() -> ModuleType:
    try:
        import fastavro
        import fastavro.schema
    except ImportError:
        raise ConfigError('Avro payloads need fastavro, here and in workers: pip install "multilane[avro]"') from None
    return fastavro


def text_of(given: Any, what: str) -> str:
    """A schema as JSON text, whichever way it was given; `what` names it in errors."""
    if isinstance(given, Mapping | list):
        return json.dumps(_without_marks(given))
    if isinstance(given, str) and given.lstrip().startswith(("{", "[", '"')):
        return given
    if isinstance(given, str | os.PathLike):
        return _from_file(Path(given), what)
    raise ConfigError(f"{what} is {given!r}: give a dict, JSON text or the path of an .avsc file")


def _from_file(path: Path, what: str) -> str:
    """Types that it names and does not define are looked for in files beside it: `<full name>.avsc`."""
    if not path.is_file():
        raise ConfigError(f"{what}: there is no file {path}")
    if path.suffix != ".avsc":
        return path.read_text()
    load = fastavro().schema.load_schema
    try:
        return json.dumps(_without_marks(load(str(path))))
    except Exception as error:  # noqa: BLE001 - see _refused
        raise _refused(f"{what}, {path},", error) from None


def parsed(text: str, what: str) -> Parsed:
    """Checked as Avro wants it."""
    named: dict[str, Any] = {}
    parse = fastavro().parse_schema
    try:
        schema = parse(json.loads(text), named)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{what} is no JSON: {error}") from None
    except Exception as error:  # noqa: BLE001 - see _refused
        raise _refused(what, error) from None
    return Parsed(schema, named)


def _refused(what: str, error: Exception) -> ConfigError:
    """The library has errors of its own, and some of Python's: all of them are about the schema."""
    return ConfigError(f"{what} is no Avro schema: {type(error).__name__}: {error}")


def plain(schema: Any) -> Any:
    """The same bytes, of plain types only."""
    if isinstance(schema, list):
        return [plain(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: value for key, value in schema.items() if key not in _LOGICAL and not key.startswith("__")}
    for inner in ("type", "items", "values"):
        if inner in made:
            made[inner] = plain(made[inner])
    if "fields" in made:
        made["fields"] = [{**field, "type": plain(field["type"])} for field in made["fields"]]
    return made


def _without_marks(schema: Any) -> Any:
    """What the library notes about schemas that it has seen is not for others."""
    if isinstance(schema, list):
        return [_without_marks(one) for one in schema]
    if isinstance(schema, Mapping):
        return {key: _without_marks(value) for key, value in schema.items() if not str(key).startswith("__")}
    return schema
