"""Payloads as Spark columns: turns a pydantic model or a JSON Schema into the type that Spark parses JSON into. (Avro
has a package of its own.)

Thread: any.

Constructs of JSON Schema that no Spark type has (a choice of several types, objects without known fields) are refused,
with their path; a column that silently holds nulls would be worse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, Final, get_args, get_origin, is_typeddict

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

from multilane.config.app.cluster import ClusterConfig
from multilane.errors import ConfigError
from multilane.registry.formats import Avro, JsonSchema, Protobuf
from multilane.registry.framing import ID_SIZES
from multilane.spark.json_payload import fault_of, frame_error, parsed, without_frame, without_marks

PAYLOAD: Final = "payload"
PAYLOAD_ERROR: Final = "payload_error"
_DECODED: Final = "__multilane_decoded"
_PLAIN: Final[Mapping[str, DataType]] = {"integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}
_TEXTS: Final[Mapping[str, DataType]] = {"date-time": TimestampType(), "date": DateType()}


def with_payload(frame: DataFrame, model: Any, cluster: ClusterConfig | None = None, topic: str = "") -> DataFrame:
    """Adds a column `payload` with the model's fields and a column `payload_error`. Where a value is not a valid
    payload, `payload` is null and `payload_error` says why; of a null value both are null. Projections only: rows stay
    where the source has placed them, which lanes rely on."""
    if isinstance(model, Avro | Protobuf):
        from multilane.spark.registered import payload_decoding

        decode = payload_decoding(model, cluster, topic)
        decoded = frame.withColumn(_DECODED, decode(*map(F.col, ("value", "topic", "partition", "offset"))))
        found, error = F.col(_DECODED)["payload"], F.col(_DECODED)["error"]
    else:
        plain_model, size = _unframed(model, cluster)
        struct, content = struct_of(plain_model), without_frame(F.col("value"), size)
        text = content.cast("string")
        decoded = frame.withColumn(_DECODED, parsed(text, struct))
        found, error = without_marks(F.col(_DECODED)), fault_of(text, F.col(_DECODED), struct)
        if size:
            error = F.coalesce(frame_error(F.col("value"), size), error)
    valid = F.when(F.col(PAYLOAD_ERROR).isNull(), found)  # by the column: Spark works the error out once
    return decoded.withColumn(PAYLOAD_ERROR, error).select(*frame.columns, valid.alias(PAYLOAD), PAYLOAD_ERROR)


def _unframed(model: Any, cluster: ClusterConfig | None) -> tuple[Any, int]:
    """The model of JSON payloads, and how many bytes precede each."""
    if get_origin(model) is not Annotated:
        return model, 0
    wanted, *rest = get_args(model)
    if len(rest) != 1 or not isinstance(rest[0], JsonSchema):
        raise ConfigError(f"{model!r}: give Avro(...) or Protobuf(...) by itself, or Annotated[Model, JsonSchema(...)]")
    if rest[0].validate:
        raise ConfigError(
            "JsonSchema: Spark checks values by the columns of the model: write JsonSchema(validate=False)"
        )
    if cluster is None or cluster.schema_registry is None:
        raise ConfigError("JsonSchema needs a schema registry: add schemaRegistry to the consumer's cluster")
    return wanted, 1 + ID_SIZES[cluster.schema_registry.wire_format]


def struct_of(model: Any) -> StructType:
    """The Spark type of a pydantic model, a dataclass or a JSON Schema (a mapping); a StructType is returned as it is.
    A required field is not nullable."""
    if isinstance(model, StructType):
        return model
    schema = model if isinstance(model, Mapping) else _schema_of(model)
    found = _StructReading(schema.get("$defs", schema.get("definitions", {}))).type_of(schema, "the payload")
    if not isinstance(found, StructType):
        raise ConfigError(f"the payload is {found.simpleString()}: give a model, or a JSON Schema, of an object")
    return found


def _schema_of(model: Any) -> Mapping[str, Any]:
    schema: Mapping[str, Any]
    if hasattr(model, "model_json_schema"):
        schema = model.model_json_schema()
        return schema
    if isinstance(model, type) and (is_dataclass(model) or is_typeddict(model)):
        from pydantic import TypeAdapter

        schema = TypeAdapter(model).json_schema()
        return schema
    wanted = "give a pydantic model, a dataclass, a JSON Schema, a StructType, multilane.Avro(...) or Protobuf(...)"
    raise ConfigError(f"{model!r} is not a payload type: {wanted}")


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
            return StructType([self._field(name, schema, f"{at}.{name}") for name in schema["properties"]])
        if kind == "object" and isinstance(rest, Mapping):
            return MapType(StringType(), self.type_of(rest, f"a value of {at}"))
        return None

    def _field(self, name: str, schema: Mapping[str, Any], at: str) -> StructField:
        field = schema["properties"][name]
        is_required = name in schema.get("required", ()) and not _may_be_null(field)
        return StructField(name, self.type_of(field, at), nullable=not is_required)


def _may_be_null(schema: Mapping[str, Any]) -> bool:
    declared = schema.get("type")
    branches = (*schema.get("anyOf", ()), *schema.get("oneOf", ()))
    return "null" in (declared if isinstance(declared, list) else [declared]) or any(map(_may_be_null, branches))


def _kind(schema: Mapping[str, Any]) -> str | None:
    """The single type of a schema, not counting null, as in ["string", "null"]; None if there are several."""
    declared = schema.get("type")
    kinds = [one for one in (declared if isinstance(declared, list) else [declared]) if one not in {None, "null"}]
    return str(kinds[0]) if len(kinds) == 1 else None
