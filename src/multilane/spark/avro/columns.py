"""Builds Arrow arrays from decoded values, with exactly the types that Spark expects.

Thread: any (shapes are immutable).

One column at a time, not one row: per-field decisions are made once. A value that does not fit raises without saying
which row it is in: the decoder then tries the rows one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType


class Shape(Protocol):
    @property
    def spark(self) -> DataType: ...

    def array(self, values: Sequence[Any]) -> pa.Array:
        """None becomes null."""
        ...


class Leaf:
    def __init__(self, spark: DataType, convert: Callable[[Any], Any] | None = None) -> None:
        """`convert` turns a decoded value into one that Arrow accepts for this type."""
        self.spark = spark
        self._arrow = _arrow_type(spark)
        self._convert = convert

    def array(self, values: Sequence[Any]) -> pa.Array:
        convert = self._convert
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, self._arrow)


class Struct:
    def __init__(self, fields: Mapping[str, Shape]) -> None:
        self.spark = StructType([StructField(name, shape.spark) for name, shape in fields.items()])
        self._arrow = _arrow_type(self.spark)
        self._fields = dict(fields)

    def array(self, values: Sequence[Any]) -> pa.Array:
        columns = [
            shape.array([None if value is None else value[name] for value in values])
            for name, shape in self._fields.items()
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self._arrow), mask=_nulls(values))


class Items:
    def __init__(self, item: Shape) -> None:
        self.spark = ArrayType(item.spark)
        self._arrow = _arrow_type(self.spark)
        self._item = item

    def array(self, values: Sequence[Any]) -> pa.Array:
        items = self._item.array(list(chain.from_iterable(value or () for value in values)))
        return pa.ListArray.from_arrays(_ends(values), items, type=self._arrow, mask=_nulls(values))


class Entries:
    def __init__(self, value: Shape) -> None:
        self.spark = MapType(StringType(), value.spark)
        self._arrow = _arrow_type(self.spark)
        self._value = value

    def array(self, values: Sequence[Any]) -> pa.Array:
        keys = pa.array(list(chain.from_iterable(value or () for value in values)), pa.string())
        items = self._value.array(list(chain.from_iterable(value.values() for value in values if value)))
        return pa.MapArray.from_arrays(_ends(values), keys, items, type=self._arrow, mask=_nulls(values))


def _arrow_type(spark: DataType) -> pa.DataType:
    return to_arrow_type(spark, timezone="UTC")


def _nulls(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _ends(values: Sequence[Any]) -> pa.Array:
    ends, end = [0], 0
    for value in values:
        end += len(value) if value is not None else 0
        ends.append(end)
    return pa.array(ends, pa.int32())
