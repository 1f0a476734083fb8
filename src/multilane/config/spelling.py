"""Maps any spelling of a property name to its row in the table.

Thread: none (pure).

Java's dotted names are canonical. Kebab, camel and snake case, librdkafka's names, Spring Boot's `spring.kafka.*` and
Spark's `kafka.*` map to the same row. Owns the assembled table; never looks at values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from multilane.config.client_table import CLIENT_PROPERTIES
from multilane.config.consumer_table import CONSUMER_PROPERTIES
from multilane.config.properties import Property
from multilane.config.refused_table import REFUSED_PROPERTIES
from multilane.config.security_table import SECURITY_PROPERTIES
from multilane.errors import ConfigError, printable

PROPERTIES: Final[dict[str, Property]] = {
    row.name: row
    for table in (CLIENT_PROPERTIES, SECURITY_PROPERTIES, CONSUMER_PROPERTIES, REFUSED_PROPERTIES)
    for row in table
}

# Longest first: a shorter prefix must not cut `spring.kafka.consumer.properties.` to `properties.`.
_PREFIXES: Final = (
    "spring.kafka.consumer.properties.",
    "spring.kafka.properties.",
    "spring.kafka.consumer.",
    "spring.kafka.",
    "kafka.",
)
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Spelling:
    """The meaning of a name: a row, and the factor from the spelling's unit to the row's."""

    row: Property
    scale: int = 1


def _index(rows: Iterable[Property]) -> dict[str, Spelling]:
    found: dict[str, Spelling] = {}
    for row in rows:
        names = [(row.name, 1), *((alias, 1) for alias in row.aliases), *row.scaled_aliases]
        for name, scale in names:
            if name in found:
                raise AssertionError(f"two properties claim the name {name}")
            found[name] = Spelling(row, scale)
    return found


_BY_NAME: Final = _index(PROPERTIES.values())


def fold(key: str) -> str:
    """The dotted lower-case form of a name, without a framework's prefix."""
    name = key.strip().replace("[", ".").replace("]", "")
    if name.upper() == name:
        name = name.lower()
    name = _HUMP.sub(".", name).replace("-", ".").replace("_", ".").lower()
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def lookup(key: object) -> Spelling:
    """The meaning of a name; raises a ConfigError with suggestions if it is unknown."""
    if not isinstance(key, str):
        raise ConfigError(f"a property name must be a string, not {type(key).__name__}")
    name = fold(key)
    found = _BY_NAME.get(name)
    if found is not None:
        return found
    near = difflib.get_close_matches(name, [n for n, s in _BY_NAME.items() if not s.row.refused], n=3, cutoff=0.7)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ConfigError(f"{printable(key, 100)}: unknown property{hint}")
