"""Maps a Protobuf message to columns: their Spark types, and how their Arrow arrays are built.

Thread: any.

Values are those of `registry.protobuf_reader.plain`. A message that contains itself has no Spark type, and is refused
with its path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from multilane.errors import ConfigError
from multilane.registry.protobuf_reader import is_repeated
from multilane.spark.avro.columns import Entries, Items, Leaf, Shape, Struct

_UNSIGNED: Final = DecimalType(20, 0)  # of 64 bits
# By the numbers of FieldDescriptor.TYPE_...
_PLAIN: Final[Mapping[int, DataType]] = {
    1: DoubleType(), 2: FloatType(), 3: LongType(), 4: _UNSIGNED, 5: IntegerType(), 6: _UNSIGNED, 7: LongType(),
    8: BooleanType(), 9: StringType(), 12: BinaryType(), 13: LongType(), 14: StringType(), 15: IntegerType(),
    16: LongType(), 17: IntegerType(), 18: LongType(),
}  # fmt: skip
_STRING_KEY: Final = 9
_KNOWN: Final[Mapping[str, DataType]] = {
    "google.protobuf.Timestamp": TimestampType(),
    "google.protobuf.Duration": DayTimeIntervalType(),
}
_ENUM: Final = 14


def shape_of_message(message: Any) -> Struct:
    """The columns of a message class."""
    return _shape(message.DESCRIPTOR, "the payload", ())


def _shape(descriptor: Any, at: str, enclosing: tuple[str, ...]) -> Struct:
    if descriptor.full_name in enclosing:
        raise ConfigError(f"{at} contains itself ({descriptor.full_name}); Spark types cannot be recursive")
    if not descriptor.fields:
        raise ConfigError(f"{at} is a message without fields ({descriptor.full_name}), which has no Spark type")
    within = (*enclosing, descriptor.full_name)
    return Struct({field.name: _field(field, f"{at}.{field.name}", within) for field in descriptor.fields})


def _field(field: Any, at: str, enclosing: tuple[str, ...]) -> Shape:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        if kind.fields_by_name["key"].type != _STRING_KEY:
            raise ConfigError(f"{at} is a map whose keys are no strings, which has no Spark type here")
        return Entries(_value(kind.fields_by_name["value"], f"a value of {at}", enclosing))
    if is_repeated(field):
        return Items(_value(field, f"an item of {at}", enclosing))
    return _value(field, at, enclosing)


def _value(field: Any, at: str, enclosing: tuple[str, ...]) -> Shape:
    kind = field.message_type
    if kind is None:
        return Leaf(_PLAIN[field.type], _text if field.type == _ENUM else None)
    if kind.full_name in _KNOWN:
        return Leaf(_KNOWN[kind.full_name])
    if (
        kind.full_name.startswith("google.protobuf.")
        and kind.full_name.endswith("Value")
        and "value" in (kind.fields_by_name)
    ):
        return _value(kind.fields_by_name["value"], at, enclosing)
    return _shape(kind, at, enclosing)


_text: Callable[[Any], str] = str  # a number that the enum does not name
