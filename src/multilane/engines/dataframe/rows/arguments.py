"""Rows of an Arrow batch -> what the function is called with.

Thread: any.

Columns become Python values a batch at a time, when the first of its rows is needed. `Row` has the values that
`DataFrame.collect` would give. A model is built of its row right before the call, so that a row that does not fit it
fails alone. Owns nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import Row

from multilane.errors import ConfigError, UndecodablePayload
from multilane.listeners.conversion import first_faults

_Convert = Callable[[Any], Any]


class Arguments:
    def __init__(self, wanted: Any) -> None:
        """`wanted`: `Row`, `dict`, or a model."""
        self._as_row = wanted is Row
        is_model = wanted not in (Row, dict)
        self._validate = _validator(wanted) if is_model else None
        self._used = _used_columns(wanted) if is_model else None
        self._name = getattr(wanted, "__name__", str(wanted))

    def values(self, batch: pa.RecordBatch) -> list[Any]:
        """Something for each row: what `of` takes."""
        if self._used is not None:
            batch = batch.select([name for name in batch.schema.names if name in self._used])
        names = batch.schema.names
        columns = [_python(column, as_row=self._as_row) for column in batch.columns]
        if not columns:
            return [{} for _ in range(batch.num_rows)]
        rows = zip(*columns, strict=True)
        if not self._as_row:
            return [dict(zip(names, row, strict=True)) for row in rows]
        return [_row(names, row) for row in rows]

    def of(self, value: Any) -> Any:
        """The argument for a row. Raises UndecodablePayload if the row does not fit the model."""
        if self._validate is None:
            return value
        try:
            return self._validate(value)
        except ValueError as error:  # pydantic's ValidationError is one
            faults = first_faults(error) if hasattr(error, "errors") else type(error).__name__
            raise UndecodablePayload(f"the row is not a valid {self._name}: {faults}") from None


def needed_columns(wanted: Any) -> Sequence[str]:
    """The columns without which no row fits the model. Raises ConfigError if rows cannot be made into it at all."""
    if wanted in (Row, dict):
        return ()
    _validator(wanted)
    return tuple(_schema(wanted).get("required", ()))


def _used_columns(wanted: Any) -> frozenset[str] | None:
    """The only columns that the model looks at; None if it takes others, too."""
    schema = _schema(wanted)
    return None if schema.get("additionalProperties") else frozenset(schema.get("properties", ()))


def _schema(wanted: Any) -> Mapping[str, Any]:
    from pydantic import TypeAdapter

    schema = TypeAdapter(wanted).json_schema()
    named: Mapping[str, Any] = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    return named  # that of a model that contains itself is only named at the top


def _validator(wanted: Any) -> Callable[[Any], Any]:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        adapter = TypeAdapter(wanted)
        is_object = _schema(wanted).get("type") == "object"
    except PydanticUserError as error:
        raise ConfigError(f"a row cannot be made into {wanted!r}: {str(error).splitlines()[0]}") from error
    if is_object:
        return adapter.validate_python
    raise ConfigError(
        f"a row cannot be made into {getattr(wanted, '__name__', wanted)}: annotate the parameter with a pydantic "
        "model or a dataclass whose fields are columns, with dict, Row, list[...] of them, or pyarrow.RecordBatch"
    )


def _python(column: pa.Array, *, as_row: bool) -> list[Any]:
    convert = _converter(column.type, as_row=as_row)
    values: list[Any] = column.to_pylist()
    return values if convert is None else [None if one is None else convert(one) for one in values]


def _converter(kind: pa.DataType, *, as_row: bool) -> _Convert | None:
    """What Arrow gives -> what Spark gives; None if they are the same."""
    if pa.types.is_struct(kind):
        return _struct_converter(kind, as_row=as_row)
    if pa.types.is_map(kind):
        key, item = _converter(kind.key_type, as_row=as_row), _converter(kind.item_type, as_row=as_row)
        return lambda pairs: {_with(key, name): _with(item, value) for name, value in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _converter(kind.value_type, as_row=as_row)
        return None if inner is None else lambda values: [_with(inner, one) for one in values]
    if as_row and pa.types.is_timestamp(kind) and kind.tz is not None:
        return _local
    return None


def _struct_converter(kind: pa.DataType, *, as_row: bool) -> _Convert | None:
    names = [kind.field(at).name for at in range(kind.num_fields)]
    converts = [_converter(kind.field(at).type, as_row=as_row) for at in range(kind.num_fields)]
    if not as_row and not any(converts):
        return None
    made = _row if as_row else lambda fields, values: dict(zip(fields, values, strict=True))
    return lambda found: made(names, [_with(one, found[name]) for name, one in zip(names, converts, strict=True)])


def _with(convert: _Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _local(value: datetime.datetime) -> datetime.datetime:
    """As in Spark's own rows: in this process's zone, without naming it."""
    return value.astimezone().replace(tzinfo=None)


def _row(names: list[str], values: Sequence[Any]) -> Row:
    made = tuple.__new__(Row, values)
    made.__fields__ = names
    return made
