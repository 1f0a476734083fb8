"""JSON payloads as Spark columns: parsed by Spark itself, with what is wrong as text.

Thread: application.

Spark's `from_json` turns a value that does not fit into nulls. Here such a payload is null as a whole, and its error
says why: invalid JSON, a value of another type, or a required field that is missing. Never puts a value into an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

_CORRUPT: Final = "__multilane_corrupt"  # where Spark puts a text that it could not parse as a whole
NOT_JSON: Final = "the value is not JSON, or has a field of another type"
_NOT_TEXT: Final = "the value is not UTF-8"


def without_frame(value: Column, size: int) -> Column:
    """What follows so many bytes."""
    return F.substr(value, F.lit(size + 1)) if size else value


def frame_error(value: Column, size: int) -> Column:
    """Null where a zero byte and a schema id precede the payload."""
    is_framed = (F.octet_length(value) >= size) & (F.substr(value, F.lit(1), F.lit(1)) == F.lit(b"\0"))
    return F.when(~is_framed, F.lit(f"the value does not begin with a zero byte and a schema id of {size - 1} bytes"))


def parsed(text: Column, struct: StructType) -> Column:
    """The struct of each text, with a mark for `fault_of`."""
    with_corrupt = StructType([*struct.fields, StructField(_CORRUPT, StringType())])
    return F.from_json(text, with_corrupt, {"columnNameOfCorruptRecord": _CORRUPT})


def without_marks(found: Column) -> Column:
    """A parsed text as its struct alone."""
    return found.dropFields(_CORRUPT)


def fault_of(text: Column, found: Column, struct: StructType) -> Column:
    """What is wrong with a parsed text; null if nothing is, or if there is no text."""
    error = F.when(text.isNotNull() & (found.isNull() | found[_CORRUPT].isNotNull()), F.lit(NOT_JSON))
    error = error.when(~F.is_valid_utf8(text), F.lit(_NOT_TEXT))
    return reduce(F.coalesce, _faults(found, struct, ""), error)


def _faults(column: Column, kind: DataType, at: str) -> Iterator[Column]:
    """Texts, each null where nothing is wrong. A field that is not nullable is required."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            held, path = column[field.name], f"{at}.{field.name}".removeprefix(".")
            if not field.nullable:
                yield F.when(column.isNotNull() & held.isNull(), F.lit(f"{path} is missing or null"))
            yield from _faults(held, field.dataType, path)
    elif isinstance(kind, ArrayType):
        yield from _faults_of_items(column, kind.elementType, f"an item of {at}")
    elif isinstance(kind, MapType):
        yield from _faults_of_items(F.map_values(column), kind.valueType, f"a value of {at}")


def _faults_of_items(items: Column, kind: DataType, at: str) -> Iterator[Column]:
    """The first fault of an array's items."""
    if next(_faults(F.lit(None), kind, at), None) is None:
        return

    def first(item: Column) -> Column:
        return reduce(F.coalesce, _faults(item, kind, at))

    # Nearly always there is none: only that is asked of every item.
    is_faulty = F.exists(items, lambda item: _is_faulty(item, kind))
    yield F.when(is_faulty, F.get(F.filter(F.transform(items, first), F.isnotnull), 0))


def _is_faulty(column: Column, kind: DataType) -> Column:
    """Whether `_faults` finds something."""
    found = F.lit(False)
    if isinstance(kind, StructType):
        for field in kind.fields:
            held = column[field.name]
            found = found | (column.isNotNull() & held.isNull()) if not field.nullable else found
            found = found | _is_faulty(held, field.dataType)
    elif isinstance(kind, ArrayType):
        found = F.coalesce(F.exists(column, lambda item: _is_faulty(item, kind.elementType)), found)
    elif isinstance(kind, MapType):
        found = F.coalesce(F.exists(F.map_values(column), lambda item: _is_faulty(item, kind.valueType)), found)
    return found
