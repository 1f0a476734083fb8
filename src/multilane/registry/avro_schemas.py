"""Reads and checks Avro schemas, and strips their logical types for decoding.

Thread: any. Reads files.

The columns interpret logical types (see `shapes`): fastavro's own Python values for them cost more, have a smaller
range, and round. So fastavro gets schemas of plain types only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from multilane.errors import ConfigError

# Attributes that describe a value, not its bytes.
_LOGICAL: Final = frozenset({"logicalType", "precision", "scale"})


@dataclass(frozen=True, slots=True)
class Parsed:
    """A schema with full names, and its named types."""

    schema: Any
    named: Mapping[str, Any]


def fastavro() -> ModuleType:
    try:
        import fastavro
        import fastavro.schema
    except ImportError:
        raise ConfigError('Avro payloads need fastavro, here and in workers: pip install "multilane[avro]"') from None
    return fastavro


def text_of(source: Any, what: str) -> str:
    """A schema in any accepted form, as JSON text; `what` names it in errors."""
    if isinstance(source, Mapping | list):
        return json.dumps(_without_markers(source))
    if isinstance(source, str) and source.lstrip().startswith(("{", "[", '"')):
        return source
    if isinstance(source, str | os.PathLike):
        return _from_file(Path(source), what)
    raise ConfigError(f"{what} is {source!r}: give a dict, JSON text or the path of an .avsc file")


def _from_file(path: Path, what: str) -> str:
    """Types that the schema names and does not define are loaded from files beside it: `<full name>.avsc`."""
    if not path.is_file():
        raise ConfigError(f"{what}: there is no file {path}")
    if path.suffix != ".avsc":
        return path.read_text()
    load = fastavro().schema.load_schema
    try:
        return json.dumps(_without_markers(load(str(path))))
    except Exception as error:  # noqa: BLE001 - see _refused
        raise _refused(f"{what}, {path},", error) from None


def parsed(text: str, what: str, references: Iterable[str] = ()) -> Parsed:
    """Parses and checks a schema; `references` are schemas that it names, each after those that it needs itself."""
    named: dict[str, Any] = {}
    parse = fastavro().parse_schema
    try:
        for reference in references:
            parse(json.loads(reference), named)
        schema = parse(json.loads(text), named)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{what} is not JSON: {error}") from None
    except Exception as error:  # noqa: BLE001 - see _refused
        raise _refused(what, error) from None
    return Parsed(schema, named)


def _refused(what: str, error: Exception) -> ConfigError:
    """fastavro raises its own errors and some of Python's: all of them are about the schema."""
    return ConfigError(f"{what} is not an Avro schema: {type(error).__name__}: {error}")


def plain(schema: Any) -> Any:
    """A schema for the same bytes, with plain types only."""
    if isinstance(schema, list):
        return [plain(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    copied = {key: value for key, value in schema.items() if key not in _LOGICAL and not key.startswith("__")}
    for inner in ("type", "items", "values"):
        if inner in copied:
            copied[inner] = plain(copied[inner])
    if "fields" in copied:
        copied["fields"] = [{**field, "type": plain(field["type"])} for field in copied["fields"]]
    return copied


def _without_markers(schema: Any) -> Any:
    """Removes the markers that fastavro adds to schemas it has parsed."""
    if isinstance(schema, list):
        return [_without_markers(one) for one in schema]
    if isinstance(schema, Mapping):
        return {key: _without_markers(value) for key, value in schema.items() if not str(key).startswith("__")}
    return schema
