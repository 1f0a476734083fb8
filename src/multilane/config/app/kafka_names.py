"""Kafka's own property names under `properties`: which client uses each, and whether its value is accepted.

Thread: none (pure).

Uses the client's own tables (`config.spelling`, `config.producer`) and duplicates none of them. Wraps secrets as it
reads them, and also every value with an unknown name: it may be a misspelt password.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from multilane.config.app.files.tree import Branch, Listing, Scalar
from multilane.config.app.kinds import FieldKind, Unfit, text_of
from multilane.config.producer import PRODUCER_PROPERTIES, parse_producer
from multilane.config.properties import Property, UsedBy
from multilane.config.properties import PropertyKind as ValueKind
from multilane.config.spelling import PROPERTIES, fold, lookup
from multilane.config.values import read
from multilane.errors import ConfigError
from multilane.secret import Secret

_PREFIXES: Final = ("producer.properties.", "producer.")


def _by_name(rows: Iterable[Property]) -> dict[str, Property]:
    return {name: row for row in rows for name in (row.name, *row.aliases, *(n for n, _ in row.scaled_aliases))}


_PRODUCER_ROWS: Final = _by_name(PRODUCER_PROPERTIES)
_ROWS: Final = _by_name(PROPERTIES.values())
_USED_BY_CONSUMERS: Final = frozenset({UsedBy.EVERY_CLIENT, UsedBy.CONSUMER})
# The check of any other property of a producer needs an address; any address will do.
_ANY_BROKER: Final[dict[str, object]] = {"bootstrap.servers": "localhost:9092"}


@dataclass(frozen=True, slots=True)
class PropertyMeaning:
    """`name` is Java's, unless the spelling uses another unit; then it stays as written."""

    name: str
    row: Property
    used_by: UsedBy

    @property
    def secret(self) -> bool:
        return self.row.kind is ValueKind.SECRET or bool(self.row.refused)


def meaning(key: str) -> PropertyMeaning:
    """The property that a name stands for; raises a ConfigError with a suggestion if it is unknown."""
    found = _known(key)
    return _of_row(key, lookup(key).row) if found is None else found


def is_secret(key: str) -> bool:
    """Whether this is a known property whose value is a secret."""
    found = _known(key)
    return found is not None and found.row.kind is ValueKind.SECRET


def _known(key: str) -> PropertyMeaning | None:
    """Like `meaning`, but without a suggestion, which takes a thousand times as long."""
    name = fold(key)
    short = next((name.removeprefix(p) for p in _PREFIXES if name.startswith(p)), name)
    own = _PRODUCER_ROWS.get(short)
    if own is not None:
        return _of_row(short, own)
    row = _ROWS.get(name)
    return None if row is None else _of_row(key, row)


def _of_row(key: str, row: Property) -> PropertyMeaning:
    scaled = any(fold(key) == other for other, _ in row.scaled_aliases)
    return PropertyMeaning(key if scaled else row.name, row, row.used_by)


def fault(key: str, value: object) -> str:
    """What is wrong with one property by itself; empty if nothing is."""
    try:
        found = meaning(key)
        if found.used_by is UsedBy.PRODUCER:
            _check_producer(found, key, value)
        else:
            read({key: value}, _USED_BY_CONSUMERS)
    except ConfigError as error:
        return str(error)
    return ""


def _check_producer(found: PropertyMeaning, key: str, value: object) -> None:
    """A single property may contradict a default (acks=1 and idempotence); only the whole set can be judged."""
    partners = {"enable.idempotence": "false", "linger.ms": "0"}
    partners.pop(found.row.name, None)
    parse_producer({**_ANY_BROKER, **partners, key: value})


def canonical(properties: Mapping[str, object], wanted: frozenset[UsedBy]) -> dict[str, object]:
    """The properties that these clients use, under the names in the tables."""
    named = ((meaning(key), value) for key, value in properties.items())
    return {found.name: value for found, value in named if found.used_by in wanted}


def owner(name: str) -> str:
    """The name of the row, whatever unit the spelling uses."""
    return meaning(name).row.name


def given_properties(properties: Mapping[str, object]) -> dict[str, object]:
    """Properties passed in code, with secrets wrapped."""
    return _properties(properties)


def _properties(value: object) -> dict[str, object]:
    if isinstance(value, Branch):
        return {
            entry.key: _value(entry.key, entry.node) for entry in value.entries.values() if not _skipped(entry.node)
        }
    if isinstance(value, Mapping):
        return {str(key): _value(str(key), held) for key, held in value.items()}
    raise Unfit("write Kafka's property names with their values", what="this is not a mapping", shown=False)


def _skipped(node: object) -> bool:
    return isinstance(node, Scalar) and (node.empty or node.broken)


def _value(key: str, held: object) -> object:
    """Texts as written; the tables parse numbers and flags from them."""
    if isinstance(held, Listing):
        return tuple(text_of(item) for item in held.items)
    if isinstance(held, Branch):
        raise Unfit("write `full.property.name: value` on one line", what="a property holds a mapping", shown=False)
    if not isinstance(held, (Scalar, str)):
        return held
    text = held.text if isinstance(held, Scalar) else held
    found = _known(key)
    return Secret(text) if found is None or found.secret else text


Properties = Annotated[
    Mapping[str, object],
    FieldKind(
        _properties,
        {
            "type": "object",
            "additionalProperties": {
                "type": ["string", "number", "boolean", "array", "null"],
                "items": {"type": "string"},
            },
        },
    ),
]
