"""What a function has returned for many rows -> one Arrow column of the result's type.

Thread: any.

Works by column: a struct's fields are read one after the other, so that the usual result costs an attribute access for
each field. Only if a column does not fit, each value is looked at to find those that are wrong. Never puts a value into
an error: only its type, and where it is.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_Convert = Callable[[Any], Any]

_WRONG: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


class DoesNotFit(TypeError):
    """The message names the path and both types."""


class ResultColumn:
    def __init__(self, kind: DataType, name: str = "result") -> None:
        self._kind = kind
        self._name = name
        self.arrow: Final[pa.DataType] = arrow_type(kind)
        self._convert = _converter(kind, name)
        self._fields: tuple[tuple[str, ResultColumn], ...] = ()
        if isinstance(kind, StructType):
            named = ((one.name, f"{name}.{one.name}", one.dataType) for one in kind)
            self._fields = tuple((field, ResultColumn(inner, path)) for field, path, inner in named)

    def column(self, values: list[Any]) -> tuple[pa.Array, dict[int, str]]:
        """The column, and by index what is wrong with values that do not fit; these are null."""
        try:
            return self._of(values), {}
        except _WRONG:
            faults = {at: fault for at, value in enumerate(values) if (fault := self._fault(value)) is not None}
        return self._of([None if at in faults else value for at, value in enumerate(values)]), faults

    def _of(self, values: list[Any]) -> pa.Array:
        if self._fields and all(type(value) is type(values[0]) for value in values) and _has_attributes(values[0]):
            arrays = [one._of([getattr(value, name) for value in values]) for name, one in self._fields]  # noqa: SLF001 - of its own class
            return pa.StructArray.from_arrays(arrays, fields=list(self.arrow))
        return pa.array(values if self._convert is None else list(map(self._convert, values)), self.arrow)

    def _fault(self, value: Any) -> str | None:
        try:
            self._of([value])
        except DoesNotFit as error:
            return str(error)
        except AttributeError as error:
            return f"{self._name} is {type(value).__name__}, which has no field {error.name!r}"
        except _WRONG:
            return self._fault_within(value)
        return None

    def _fault_within(self, value: Any) -> str:
        for name, one in self._fields:
            found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
            if (fault := one._fault(found)) is not None:  # noqa: SLF001 - of its own class
                return fault
        return _told(self._name, value, self._kind)


def arrow_type(kind: DataType) -> pa.DataType:
    return to_arrow_schema(StructType([StructField("result", kind)]), timezone="UTC").field(0).type


def _has_attributes(value: Any) -> bool:
    """Whether fields are attributes: models, dataclasses, named tuples and rows."""
    return not isinstance(value, Mapping | list) and (hasattr(value, "__dict__") or hasattr(value, "_fields"))


def _told(path: str, value: Any, kind: DataType) -> str:
    return f"{path} is {type(value).__name__}, and has to be {kind.simpleString()}"


# --- one value -------------------------------------------------------------------------------------------------------


def _converter(kind: DataType, path: str) -> _Convert | None:
    """What makes of a value what Arrow takes; None if Arrow takes it as it is, and refuses what does not fit."""
    makes: tuple[tuple[type[DataType], Callable[[Any, str], _Convert]], ...] = (
        (StructType, _struct),
        (ArrayType, _list),
        (MapType, _map),
        (StringType, partial(_checked, (str,))),
        (TimestampType, _timestamp),
        (DateType, partial(_checked, (datetime.date,))),
        (NumericType, _number),
    )
    return next((make(kind, path) for one, make in makes if isinstance(kind, one)), None)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, UUID) else value


def _checked(fitting: tuple[type, ...], kind: DataType, path: str) -> _Convert:
    def convert(value: Any) -> Any:
        if value is None or type(value) in fitting:
            return value
        plain = _plain(value)
        if not isinstance(plain, fitting):
            raise DoesNotFit(_told(path, value, kind))
        return plain

    return convert


def _number(kind: DataType, path: str) -> _Convert:
    is_whole = isinstance(kind, IntegralType)

    def convert(value: Any) -> Any:
        if isinstance(value, bool | str | bytes):  # Arrow takes some of them for numbers
            if isinstance(value, Enum):
                return value.value
            raise DoesNotFit(_told(path, value, kind))
        plain = value.value if isinstance(value, Enum) else value
        if is_whole and not hasattr(plain, "__index__") and plain is not None:
            raise DoesNotFit(_told(path, value, kind))  # Arrow would cut off the fraction
        return plain

    return convert


def _timestamp(kind: DataType, path: str) -> _Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, datetime.datetime):
            raise DoesNotFit(_told(path, value, kind))
        return value.astimezone(datetime.UTC)  # as Spark does: without a zone it is of this process's

    return convert


def _list(kind: ArrayType, path: str) -> _Convert:
    item = _converter(kind.elementType, f"an item of {path}")

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, str | bytes | Mapping):
            raise DoesNotFit(_told(path, value, kind))
        return list(value) if item is None else [item(one) for one in value]

    return convert


def _map(kind: MapType, path: str) -> _Convert:
    key = _converter(kind.keyType, f"a key of {path}") or _same
    content = _converter(kind.valueType, f"a value of {path}") or _same

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise DoesNotFit(_told(path, value, kind))
        return [(key(name), content(one)) for name, one in value.items()]

    return convert


def _same(value: Any) -> Any:
    return value


def _struct(kind: StructType, path: str) -> _Convert:
    converts = {one.name: _converter(one.dataType, f"{path}.{one.name}") or _same for one in kind}

    def convert(value: Any) -> Any:
        if value is None:
            return None
        found = _found(value, converts, kind, path)
        return {name: converts[name](one) for name, one in found.items()}

    return convert


def _found(value: Any, names: Mapping[str, _Convert], kind: StructType, path: str) -> Mapping[str, Any]:
    """The fields of a struct. A dict may leave some out, which are null then, but may not have others: a misspelt name
    would be a null in silence."""
    if isinstance(value, Mapping):
        unknown = [name for name in value if name not in names]
        if unknown:
            raise DoesNotFit(f"{path} has a field {unknown[0]!r}, and its type is {kind.simpleString()}")
        return value
    if isinstance(value, Sequence) and not hasattr(value, "_fields") and not hasattr(value, "__fields__"):
        if isinstance(value, str | bytes) or len(value) != len(names):
            raise DoesNotFit(_told(path, value, kind))
        return dict(zip(names, value, strict=True))
    if not any(hasattr(value, name) for name in names):
        raise DoesNotFit(_told(path, value, kind))
    return {name: getattr(value, name) for name in names}
