"""How a user describes Avro payloads: the reader's schema, the writers' schemas, and the framing.

Thread: any (a value).

Imports nothing heavy: it is part of the public interface, also without Spark or fastavro installed.
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

    A schema is a dict, JSON text, or the path of an .avsc file. `schema` is the reader's schema: its fields become the
    columns. `writer` is the schema the payloads were written with (default: `schema`); `writers` maps schema ids to
    writer schemas, for framed payloads. `framing="confluent"`: a zero byte and a four-byte schema id precede each
    payload.
    """

    schema: AvroSchema
    writer: AvroSchema | None = None
    writers: Mapping[int, AvroSchema] | None = None
    framing: str | None = None

    def __post_init__(self) -> None:
        if self.framing not in FRAMINGS:
            raise ConfigError(f"unknown framing={self.framing!r}: set framing={CONFLUENT!r}, or leave it out")
        if self.writer is not None and self.writers is not None:
            raise ConfigError("give either `writer`, one schema for all payloads, or `writers`, one per schema id")
        if self.writers is not None and self.framing is None:
            raise ConfigError(
                f"`writers` are selected by the schema id before each payload: set framing={CONFLUENT!r} too"
            )
        keys: list[object] = list(self.writers or ())
        wrong = [key for key in keys if not isinstance(key, int)]
        if wrong:
            raise ConfigError(f"`writers` has the key {wrong[0]!r}: schema ids are numbers, as in {{7: 'order.avsc'}}")
