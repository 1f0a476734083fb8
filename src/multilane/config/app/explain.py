"""Every value of a configuration, with its source.

Thread: none (pure).

Owns the wording of origins. Never shows a secret: neither the value of a secret key or property, nor the login in an
address.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from multilane.config.app.entries import Reading, variables_of
from multilane.config.app.files.source_location import SourceLocation
from multilane.config.app.files.tree import TreeNode
from multilane.config.app.loading import Loaded
from multilane.config.app.shape import Frozen, is_entry_name, kind_of, nested_model
from multilane.config.app.units import format_duration, format_size
from multilane.errors import printable
from multilane.secret import MASK, Secret, without_credentials

_SHOWN: Final = 2_000


@dataclass(frozen=True, slots=True)
class Origin:
    """`location` is None for a default."""

    location: SourceLocation | None = None
    profile: str | None = None
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.location is None:
            return "default"
        parts = [str(self.location)]
        parts += [f"profile {self.profile}"] if self.profile is not None else []
        parts += [f"environment {', '.join(self.variables)}"] if self.variables else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Setting:
    """`value` is for JSON (times in seconds, sizes in bytes), `shown` for people."""

    path: str
    value: object
    shown: str
    origin: Origin


def explain(loaded: Loaded) -> tuple[Setting, ...]:
    """Every setting of every entry, in the order of the sections."""
    found: list[Setting] = []
    for readings in loaded.readings.values():
        for reading in readings.values():
            found += _settings(reading, reading.config, ())
    return tuple(found)


def _settings(reading: Reading[Any], model: Frozen, above: tuple[str, ...]) -> Iterator[Setting]:
    for name, info in type(model).model_fields.items():
        if is_entry_name(type(model), name):
            continue
        steps, value = (*above, name), getattr(model, name)
        if isinstance(value, Frozen) and nested_model(info) is not None:
            yield from _settings(reading, value, steps)
        elif name == "properties":
            for key, held in value.items():
                yield _setting(reading, (*steps, key), held, "")
        else:
            kind = kind_of(info)
            yield _setting(reading, steps, value, "" if kind is None else kind.form)


def _setting(reading: Reading[Any], steps: tuple[str, ...], value: object, form: str) -> Setting:
    plain = _plain(value)
    return Setting(reading.path(steps), plain, _shown(plain, form), _origin(reading.node(steps)))


def _plain(value: object) -> object:
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, dict):
        return {name: _plain(held) for name, held in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def _shown(value: object, form: str) -> str:
    match value:
        case bool():
            text = str(value).lower()
        case float() if form == "duration":
            text = format_duration(value)
        case int() if form == "size":
            text = format_size(value)
        case list():
            text = ", ".join(map(str, value))
        case dict():
            text = ", ".join(f"{name}: {held}" for name, held in value.items())
        case _:
            text = "" if value is None else str(value)
    return printable(text, _SHOWN) or "-"


def _origin(node: TreeNode | None) -> Origin:
    return Origin() if node is None else Origin(node.location, node.profile, variables_of(node))
