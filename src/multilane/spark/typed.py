"""Payloads as Spark columns: from a pydantic model or a JSON Schema to the type that Spark reads JSON into. (Avro has a
package of its own.)

Thread: any.

What JSON Schema can say and a Spark type cannot (a choice of several types, objects without known fields) is refused
with the place; a column that silently holds nulls would be worse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from multilane.errors import ConfigError
from multilane.spark.avro.payload import Avro

PAYLOAD: Final = "payload"
_PLAIN: Final[Mapping[str, DataType]] = {"integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}
_TEXTS: Final[Mapping[str, DataType]] = {"date-time": TimestampType(), "date": DateType()}


def with_payload(frame: DataFrame, model: Any) -> DataFrame:
    """The rows with a column `payload` of the model's fields. They are null where a value is no such JSON; of a value
    that is no such Avro the payload itself is."""
    if isinstance(model, Avro):
        from multilane.spark.avro.decoding import decoding

        return frame.withColumn(PAYLOAD, decoding(model)(F.col("value")))
    return frame.withColumn(PAYLOAD, F.from_json(F.col("value").cast("string"), struct_of(model)))


def struct_of(model: Any) -> StructType:
    """The Spark type of a pydantic model, a JSON Schema (a mapping) or, as it is, a StructType."""
    if isinstance(model, StructType):
        return model
    schema = model if isinstance(model, Mapping) else _schema_of(model)
    found = _StructReading(schema.get("$defs", schema.get("definitions", {}))).type_of(schema, "the payload")
    if not isinstance(found, StructType):
        raise ConfigError(f"the payload is {found.simpleString()}: give a model, or a JSON Schema, of an object")
    return found


def _schema_of(model: Any) -> Mapping[str, Any]:
    try:
        schema: Mapping[str, Any] = model.model_json_schema()
    except AttributeError:
        told = "give a pydantic model, a JSON Schema, a StructType or multilane.Avro(...)"
        raise ConfigError(f"{model!r} is no payload type: {told}") from None
    return schema


class _StructReading:
    """Of one schema; `named` are the parts that it refers to."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._within: list[str] = []

    def type_of(self, schema: Mapping[str, Any], at: str) -> DataType:
        if "$ref" in schema:
            return self._referred(str(schema["$ref"]).rpartition("/")[2], at)
        kinds = [kind for kind in schema.get("anyOf", schema.get("oneOf", ())) if kind.get("type") != "null"]
        if len(kinds) == 1:
            return self.type_of(kinds[0], at)
        found = self._plain(schema) or self._nested(schema, at)
        if found is None:
            kind = _kind(schema) or "of several types"
            raise ConfigError(f"{at} is {kind} in a way that no Spark type is; write a StructType instead")
        return found

    def _referred(self, name: str, at: str) -> DataType:
        if name in self._within:
            raise ConfigError(f"{at} holds itself ({name}), which no Spark type does")
        self._within.append(name)
        found = self.type_of(self._named.get(name, {}), at)
        self._within.pop()
        return found

    def _plain(self, schema: Mapping[str, Any]) -> DataType | None:
        kind = _kind(schema)
        if kind == "string":
            return _TEXTS.get(schema.get("format", ""), StringType())
        if kind is None and schema.get("enum") and all(isinstance(one, str) for one in schema["enum"]):
            return StringType()
        return _PLAIN.get(kind or "")

    def _nested(self, schema: Mapping[str, Any], at: str) -> DataType | None:
        kind, rest = _kind(schema), schema.get("additionalProperties")
        if kind == "array" and "items" in schema:
            return ArrayType(self.type_of(schema["items"], f"an item of {at}"))
        if kind == "object" and "properties" in schema:
            fields = schema["properties"].items()
            return StructType([StructField(name, self.type_of(of, f"{at}.{name}")) for name, of in fields])
        if kind == "object" and isinstance(rest, Mapping):
            return MapType(StringType(), self.type_of(rest, f"a value of {at}"))
        return None


def _kind(schema: Mapping[str, Any]) -> str | None:
    """The one type it has; null beside it does not count, as in ["string", "null"]."""
    told = schema.get("type")
    kinds = [one for one in (told if isinstance(told, list) else [told]) if one not in {None, "null"}]
    return str(kinds[0]) if len(kinds) == 1 else None
