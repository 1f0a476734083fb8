"""What a user says of Avro payloads: the schema that is wanted, and how and with what they were written.

Thread: any (a value).

Loads nothing heavy: it is part of the public interface, also of those who have neither Spark nor fastavro.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from multilane.errors import ConfigError

CONFLUENT: Final = "confluent"
FRAMINGS: Final = (None, CONFLUENT)

AvroSchema = str | os.PathLike[str] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Avro:
    """
    >>> orders = app.stream("orders", multilane.Avro("order.avsc"))
    >>> framed = app.stream("orders", multilane.Avro("order.avsc", framing="confluent", writers={7: "order-1.avsc"}))

    A schema is a dict, JSON text, or the path of an .avsc file. `schema` is the reader's: the columns are its fields.
    `writer` is what the payloads were written with, where that is another; `writers` the same for each schema id, which
    only framed payloads have. `framing="confluent"`: a zero byte and a schema id of four bytes stand before each.
    """

    schema: AvroSchema
    writer: AvroSchema | None = None
    writers: Mapping[int, AvroSchema] | None = None
    framing: str | None = None

    def __post_init__(self) -> None:
        if self.framing not in FRAMINGS:
            raise ConfigError(f"framing={self.framing!r} is not known: say framing={CONFLUENT!r}, or nothing")
        if self.writer is not None and self.writers is not None:
            raise ConfigError("give either `writer`, one schema for all payloads, or `writers`, one for each schema id")
        if self.writers is not None and self.framing is None:
            raise ConfigError(f"`writers` are found by the id before each payload: say framing={CONFLUENT!r} too")
        keys: list[object] = list(self.writers or ())
        wrong = [key for key in keys if not isinstance(key, int)]
        if wrong:
            raise ConfigError(f"`writers` has the key {wrong[0]!r}: schema ids are numbers, as in {{7: 'order.avsc'}}")
