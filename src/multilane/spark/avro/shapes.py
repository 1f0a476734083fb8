"""Maps an Avro schema to columns: their Spark types, and how their Arrow arrays are built.

Thread: any.

Constructs of Avro that no Spark type has (a choice of several types, a recursive record) are refused, with their path,
as for JSON. fastavro decodes values as plain types: numbers, text, bytes, lists and dicts.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from multilane.errors import ConfigError
from multilane.registry.avro_schemas import Parsed
from multilane.spark.avro.columns import Entries, Items, Leaf, Shape, Struct

_PLAIN: Final[Mapping[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
    "fixed": BinaryType(),
}
_MOST_DIGITS: Final = 38
_UUID_SIZE: Final = 16
# Unions whose values all fit into one type.
_WIDENED: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


def _micros(millis: int) -> int:
    return millis * 1_000


def _uuid_text(content: bytes) -> str:
    return str(uuid.UUID(bytes=content))


_LOGICAL: Final[Mapping[tuple[str, str], tuple[DataType, Callable[[Any], Any] | None]]] = {
    ("int", "date"): (DateType(), None),
    ("long", "timestamp-millis"): (TimestampType(), _micros),
    ("long", "timestamp-micros"): (TimestampType(), None),
    ("long", "local-timestamp-millis"): (TimestampNTZType(), _micros),
    ("long", "local-timestamp-micros"): (TimestampNTZType(), None),
}


def shape_of(parsed: Parsed) -> Struct:
    found = _ShapeReading(parsed.named).shape_of(parsed.schema, "the payload")
    if not isinstance(found, Struct):
        raise ConfigError(f"the payload is {found.spark.simpleString()}: give an Avro schema of a record")
    return found


class _ShapeReading:
    """Converts one schema; `named` are the types that it refers to."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._enclosing: list[str] = []

    def shape_of(self, schema: Any, at: str) -> Shape:
        if isinstance(schema, list):
            return self._union(schema, at)
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        kind = schema["type"]
        if not isinstance(kind, str) or (kind not in _PLAIN and kind in self._named):  # a type wrapped in another
            return self.shape_of(kind, at)
        if kind in {"record", "error"}:
            return self._record(schema, at)
        if kind == "array":
            return Items(self.shape_of(schema["items"], f"an item of {at}"))
        if kind == "map":
            return Entries(self.shape_of(schema["values"], f"a value of {at}"))
        if kind not in _PLAIN:
            raise ConfigError(f"{at} is {kind}, which has no Spark type")
        return _logical(kind, schema, at) or Leaf(_PLAIN[kind])

    def _union(self, branches: list[Any], at: str) -> Shape:
        kinds = [one for one in branches if one != "null"]
        if len(kinds) == 1:
            return self.shape_of(kinds[0], at)
        wide = _WIDENED.get(frozenset(kinds)) if all(isinstance(one, str) for one in kinds) else None
        if wide is None:
            names = ", ".join(_name(one) for one in kinds) or "nothing but null"
            raise ConfigError(f"{at} is one of several types ({names}), which has no Spark type")
        return Leaf(_PLAIN[wide])

    def _record(self, schema: Mapping[str, Any], at: str) -> Struct:
        name = str(schema["name"])
        if name in self._enclosing:
            raise ConfigError(f"{at} contains itself ({name}); Spark types cannot be recursive")
        self._enclosing.append(name)
        fields = {str(f["name"]): self.shape_of(f["type"], f"{at}.{f['name']}") for f in schema["fields"]}
        self._enclosing.pop()
        if not fields:
            raise ConfigError(f"{at} is a record without fields ({name}), which has no Spark type")
        return Struct(fields)


def _logical(kind: str, schema: Mapping[str, Any], at: str) -> Leaf | None:
    """None without a logical type, or with an unknown one: per Avro's specification the plain type applies then."""
    logical_type = schema.get("logicalType")
    if logical_type == "decimal" and kind in {"bytes", "fixed"}:
        return _decimal(int(schema["precision"]), int(schema.get("scale", 0)), at)
    if logical_type == "uuid" and kind == "fixed" and schema["size"] == _UUID_SIZE:
        return Leaf(StringType(), _uuid_text)
    known = _LOGICAL.get((kind, str(logical_type)))
    return None if known is None else Leaf(*known)


def _decimal(precision: int, scale: int, at: str) -> Leaf:
    if precision > _MOST_DIGITS:
        raise ConfigError(f"{at} is a decimal of {precision} digits; Spark allows at most {_MOST_DIGITS}")
    limit = 10**precision

    def number(content: bytes) -> Decimal:
        unscaled = int.from_bytes(content, "big", signed=True)
        if abs(unscaled) >= limit:
            raise ValueError(f"more than {precision} digits")
        # Arithmetic would round to the precision of the decimal context.
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))

    return Leaf(DecimalType(precision, scale), number)


def _name(schema: Any) -> str:
    return str(schema.get("name", schema.get("type"))) if isinstance(schema, Mapping) else str(schema)
