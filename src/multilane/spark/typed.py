"""Payloads as Spark columns: turns a pydantic model or a JSON Schema into the type that Spark parses JSON into. (Avro
has a package of its own.)

Thread: any.

Constructs of JSON Schema that no Spark type has (a choice of several types, objects without known fields) are refused,
with their path; a column that silently holds nulls would be worse.
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
from multilane.registry.formats import Avro

PAYLOAD: Final = "payload"
_PLAIN: Final[Mapping[str, DataType]] = {"integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}
_TEXTS: Final[Mapping[str, DataType]] = {"date-time": TimestampType(), "date": DateType()}


def with_payload(frame: DataFrame, model: Any) -> DataFrame:
    """Adds a column `payload` with the model's fields. If a value is not valid JSON for the model, the fields are null;
    if it is not valid Avro, the payload itself is null."""
    if isinstance(model, Avro):
        from multilane.spark.avro.decoding import decoding

        return frame.withColumn(PAYLOAD, decoding(model)(F.col("value")))
    return frame.withColumn(PAYLOAD, F.from_json(F.col("value").cast("string"), struct_of(model)))


def struct_of(model: Any) -> StructType:
    """The Spark type of a pydantic model or a JSON Schema (a mapping); a StructType is returned as it is."""
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
        wanted = "give a pydantic model, a JSON Schema, a StructType or multilane.Avro(...)"
        raise ConfigError(f"{model!r} is not a payload type: {wanted}") from None
    return schema


class _StructReading:
    """Converts one schema; `named` are its definitions, for `$ref`."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._enclosing: list[str] = []

    def type_of(self, schema: Mapping[str, Any], at: str) -> DataType:
        if "$ref" in schema:
            return self._by_reference(str(schema["$ref"]).rpartition("/")[2], at)
        kinds = [kind for kind in schema.get("anyOf", schema.get("oneOf", ())) if kind.get("type") != "null"]
        if len(kinds) == 1:
            return self.type_of(kinds[0], at)
        found = self._plain(schema) or self._nested(schema, at)
        if found is None:
            kind = _kind(schema) or "of several types"
            raise ConfigError(f"{at} is {kind} in a form that has no Spark type; write a StructType instead")
        return found

    def _by_reference(self, name: str, at: str) -> DataType:
        if name in self._enclosing:
            raise ConfigError(f"{at} contains itself ({name}); Spark types cannot be recursive")
        self._enclosing.append(name)
        found = self.type_of(self._named.get(name, {}), at)
        self._enclosing.pop()
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
            return StructType([StructField(name, self.type_of(field, f"{at}.{name}")) for name, field in fields])
        if kind == "object" and isinstance(rest, Mapping):
            return MapType(StringType(), self.type_of(rest, f"a value of {at}"))
        return None


def _kind(schema: Mapping[str, Any]) -> str | None:
    """The single type of a schema, not counting null, as in ["string", "null"]; None if there are several."""
    declared = schema.get("type")
    kinds = [one for one in (declared if isinstance(declared, list) else [declared]) if one not in {None, "null"}]
    return str(kinds[0]) if len(kinds) == 1 else None
