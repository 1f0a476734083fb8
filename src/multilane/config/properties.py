"""The definition of one property: its name, kind, default, range, and whether it has an effect here.

Thread: none (pure values).

Owns the vocabulary of the property tables (`client_table`, `consumer_table`, `security_table`, `refused_table`). Holds
no row itself and never looks at a user's value.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class PropertyKind(Enum):
    """How the text of a value is parsed."""

    INTEGER = "a whole number"
    BYTES = "a number of bytes (100000, 64kb, 1mb)"
    MILLIS = "a number of milliseconds (500) or a duration with its unit (500ms, 10s, 5m, 1h)"
    FLAG = "true or false"
    TEXT = "a string"
    CHOICE = "one of a few words"
    LIST = "a comma-separated string or a list"
    OBJECTS = "a comma-separated string, or a list of names or objects"
    SECRET = "a secret string"  # noqa: S105 - the name of a kind
    FUNCTION = "a function"


class UsedBy(Enum):
    """The clients that use a property. Those of EVERY_CLIENT configure the connection to the cluster."""

    EVERY_CLIENT = "client"
    CONSUMER = "consumer"
    PRODUCER = "producer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One row of the table. `name` is Java's dotted name, or ours where Java has none."""

    name: str
    kind: PropertyKind
    doc: str
    used_by: UsedBy = UsedBy.EVERY_CLIENT
    default: object = None
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    scaled_aliases: tuple[tuple[str, int], ...] = ()  # in another unit: the value times the number is ours
    no_effect: str = ""  # accepted without effect, for this reason
    refused: str = ""  # not accepted, for this reason
