"""The Spark type of what a function returns: from its annotation, or from what the caller says.

Thread: any.

Reads annotations only; never a value. A type that no Spark type can hold is refused, with its path: a column that
silently holds nulls would be worse.
"""

from __future__ import annotations

import datetime
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from multilane.errors import ConfigError

_PLAIN: Final[Mapping[Any, DataType]] = {
    bool: BooleanType(),
    int: LongType(),
    float: DoubleType(),
    str: StringType(),
    bytes: BinaryType(),
    Decimal: DecimalType(38, 18),
    datetime.datetime: TimestampType(),
    datetime.date: DateType(),
    UUID: StringType(),
}
_LISTS: Final = frozenset({"list", "tuple", "set", "frozenset", "Sequence", "Iterable", "Collection"})
_MAPS: Final = frozenset({"dict", "Mapping", "MutableMapping"})
NOTHING: Final = StringType()  # the column of a function that returns nothing: always null


def spark_type(returns: Any) -> DataType:
    """`returns`: a Python type (plain, pydantic model, dataclass, TypedDict, NamedTuple, list, dict, `X | None`), a
    Spark type, or its text (`total double, note string`). None is a function that returns nothing."""
    if isinstance(returns, DataType):
        return returns
    if isinstance(returns, str):
        return _parsed(returns)
    if returns is None or returns is type(None):
        return NOTHING
    return _Reading().type_of(returns, "result")


def _parsed(text: str) -> DataType:
    try:
        return DataType.fromDDL(text)
    except Exception as error:
        raise ConfigError(
            f"returns={text!r} is no Spark type: {str(error).splitlines()[0]}. Write `bigint` or `total double, note "
            "string`"
        ) from error


class _Reading:
    """Reads one annotation."""

    def __init__(self) -> None:
        self._enclosing: list[Any] = []

    def type_of(self, wanted: Any, at: str) -> DataType:
        wanted = _without_wrapping(wanted)
        try:
            plain = _PLAIN.get(wanted)
        except TypeError:  # cannot be a key
            plain = None
        found = plain or self._nested(wanted, at) or self._of_values(wanted, at) or self._struct(wanted, at)
        if found is None:
            name = getattr(wanted, "__name__", None) or str(wanted)
            raise ConfigError(
                f"{at} is {name}, which has no Spark type: use a pydantic model, a dataclass, a plain type, or pass "
                "returns= a StructType"
            )
        return found

    def _nested(self, wanted: Any, at: str) -> DataType | None:
        name = getattr(typing.get_origin(wanted), "__name__", "")
        inner = [one for one in typing.get_args(wanted) if one is not Ellipsis]
        if name in _LISTS and len(inner) == 1:
            return ArrayType(self.type_of(inner[0], f"an item of {at}"))
        if name in _MAPS and len(inner) == 2:
            return MapType(self.type_of(inner[0], f"a key of {at}"), self.type_of(inner[1], f"a value of {at}"))
        return None

    def _of_values(self, wanted: Any, at: str) -> DataType | None:
        """An enumeration or a choice of literals: the type of its values, if all have the same."""
        values: Iterable[Any] = ()
        if typing.get_origin(wanted) is typing.Literal:
            values = typing.get_args(wanted)
        elif isinstance(wanted, type) and issubclass(wanted, Enum):
            values = [one.value for one in wanted]
        kinds = {type(one) for one in values if one is not None}
        return self.type_of(kinds.pop(), at) if len(kinds) == 1 else None

    def _struct(self, wanted: Any, at: str) -> DataType | None:
        named = _fields(wanted)
        if named is None:
            return None
        if wanted in self._enclosing:
            raise ConfigError(f"{at} contains itself ({wanted.__name__}); Spark types cannot be recursive")
        self._enclosing.append(wanted)
        found = StructType([StructField(name, self.type_of(kind, f"{at}.{name}")) for name, kind in named.items()])
        self._enclosing.pop()
        return found


def _without_wrapping(wanted: Any) -> Any:
    """Without `| None`, Annotated and NewType."""
    while True:
        origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
        others = [one for one in inner if one is not type(None)]
        if origin is typing.Annotated:
            wanted = inner[0]
        elif origin in {typing.Union, types.UnionType} and len(others) == 1:
            wanted = others[0]
        elif isinstance(wanted, typing.NewType):
            wanted = wanted.__supertype__
        else:
            return wanted


def _fields(wanted: Any) -> dict[str, Any] | None:
    if not isinstance(wanted, type):
        return None
    models = getattr(wanted, "model_fields", None)  # pydantic
    if isinstance(models, dict) and models:
        return {name: field.annotation for name, field in models.items()}
    is_struct = is_dataclass(wanted) or typing.is_typeddict(wanted) or hasattr(wanted, "_fields")
    if not is_struct:
        return None
    hints = typing.get_type_hints(wanted)
    names = [field.name for field in fields(wanted)] if is_dataclass(wanted) else list(hints)
    return {name: hints[name] for name in names} or None
