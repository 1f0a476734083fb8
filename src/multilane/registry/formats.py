"""How a user describes payloads with a schema: the reader's schema, the writers' schemas, and the framing.

Thread: any (values).

Imports nothing heavy: they are part of the public interface, also without Spark or the libraries of the formats.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from multilane.config.app.registry import CONFLUENT
from multilane.errors import ConfigError

REGISTRY: Final = "registry"
FRAMINGS: Final = (None, CONFLUENT, REGISTRY)

AvroSchema = str | os.PathLike[str] | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Avro:
    """
    >>> @app.listener("orders")
    ... async def index(order: Annotated[Order, multilane.Avro()]) -> None: ...
    >>> orders = app.stream("orders", multilane.Avro("order.avsc"))
    >>> framed = app.stream("orders", multilane.Avro("order.avsc", framing="confluent", writers={7: "order-1.avsc"}))

    A schema is a dict, JSON text, or the path of an .avsc file. `schema` is the reader's schema: its fields become the
    columns. `writer` is the schema the payloads were written with (default: `schema`); `writers` maps schema ids to
    writer schemas, for framed payloads. `framing="registry"` (default, without a schema): a schema id precedes each
    payload, and the cluster's `schemaRegistry` has the writer's schema. `framing="confluent"`: a zero byte and a
    four-byte schema id precede each payload, and no registry is asked.
    """

    schema: AvroSchema | None = None
    writer: AvroSchema | None = None
    writers: Mapping[int, AvroSchema] | None = None
    framing: str | None = None

    def __post_init__(self) -> None:
        if self.schema is None and self.framing is None and self.writer is None and self.writers is None:
            object.__setattr__(self, "framing", REGISTRY)
        if self.framing not in FRAMINGS:
            raise ConfigError(
                f"unknown framing={self.framing!r}: set framing={CONFLUENT!r} or framing={REGISTRY!r}, or leave it out"
            )
        if self.writer is not None and self.writers is not None:
            raise ConfigError("give either `writer`, one schema for all payloads, or `writers`, one per schema id")
        if self.needs_registry and (self.writer is not None or self.writers is not None):
            raise ConfigError(
                f"with framing={REGISTRY!r} the registry has the writers' schemas: leave out `writer` and `writers`"
            )
        if self.writers is not None and self.framing is None:
            raise ConfigError(
                f"`writers` are selected by the schema id before each payload: set framing={CONFLUENT!r} too"
            )
        if self.schema is None and not self.needs_registry:
            raise ConfigError("give `schema`, the reader's schema: only a registry has one to use instead")
        keys: list[object] = list(self.writers or ())
        wrong = [key for key in keys if not isinstance(key, int)]
        if wrong:
            raise ConfigError(f"`writers` has the key {wrong[0]!r}: schema ids are numbers, as in {{7: 'order.avsc'}}")

    @property
    def needs_registry(self) -> bool:
        return self.framing == REGISTRY


@dataclass(frozen=True, slots=True)
class Protobuf:
    """
    >>> @app.listener("orders")
    ... async def index(order: Annotated[Order, multilane.Protobuf(OrderMessage)]) -> None: ...

    `message` is the class that protoc generated; a function that takes that class itself gets the message. A schema id
    and the message's index precede each payload, as Confluent's serialisers write them.
    """

    message: Any

    def __post_init__(self) -> None:
        if not hasattr(self.message, "DESCRIPTOR") or not hasattr(self.message, "FromString"):
            raise ConfigError(f"Protobuf({self.message!r}): give a message class that protoc generated")

    @property
    def needs_registry(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """
    >>> @app.listener("orders")
    ... async def index(order: Annotated[Order, multilane.JsonSchema()]) -> None: ...

    JSON behind a schema id. `validate`: each value is checked against the schema of the registry that it was written
    with, before it is decoded.
    """

    validate: bool = True

    @property
    def needs_registry(self) -> bool:
        return True


PayloadFormat = Avro | Protobuf | JsonSchema
