"""The caller's function: what it is called with, what it returns, and how it comes to Spark's workers.

Thread: any.

Annotations decide, as for listeners: a parameter without one, or with `Row`, gets rows; a model gets what was built of
the columns; a list gets several at once, a `pyarrow.RecordBatch` several as columns. Owns the checks of the signature.
Never calls the function.
"""

from __future__ import annotations

import functools
import inspect
import pickle
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import DataType, Row

from multilane.engines.dataframe.rows.result_types import spark_type
from multilane.errors import ConfigError
from multilane.listeners.signature import ListenerKind, is_async, location_of

UNSAID: Final = object()  # the caller has not said what the function returns


@dataclass(frozen=True, slots=True)
class RowFunction:
    """`argument`: what is made of a row: `Row`, `dict`, or a model; nothing for columns."""

    function: Callable[..., Any]
    kind: ListenerKind
    is_async: bool
    argument: Any

    def __str__(self) -> str:
        return location_of(self.function)

    @property
    def name(self) -> str:
        inner: Any = self.function.func if isinstance(self.function, functools.partial) else self.function
        return str(getattr(inner, "__name__", type(inner).__name__))


def read_function(function: Callable[..., Any], returns: Any = UNSAID) -> tuple[RowFunction, DataType]:
    """The function, and the type of its results. Raises ConfigError with what to write instead."""
    inner = function.func if isinstance(function, functools.partial) else function
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigError(f"{location_of(function)} is a generator: return instead of yield")
    parameter, hints = _parameter(function), _hints(function)
    kind, argument = _meaning(hints.get(parameter, Row))
    if returns is UNSAID:
        returns = _returned(function, hints, kind)
    return RowFunction(function, kind, is_async(function), argument), spark_type(returns)


def _parameter(function: Callable[..., Any]) -> str:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ConfigError(f"{function!r} has no signature: write a function with one parameter, the row") from None
    wanted = [p.name for p in parameters if p.default is p.empty and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}]
    if len(wanted) != 1:
        many = ", ".join(wanted) or "none"
        raise ConfigError(
            f"{location_of(function)} has to have one parameter without a default, the row; it has: {many}. Bind "
            "others with functools.partial"
        )
    return wanted[0]


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    inner = function.func if isinstance(function, functools.partial) else function
    source = inner if inspect.isroutine(inner) else getattr(inner, "__call__", inner)  # noqa: B004
    try:
        return typing.get_type_hints(source)
    except Exception as error:
        raise ConfigError(
            f"{location_of(function)}: cannot resolve its annotations: {error}. Import the annotated types "
            "at run time, not only under TYPE_CHECKING"
        ) from error


def _meaning(annotation: Any) -> tuple[ListenerKind, Any]:
    if annotation is pa.RecordBatch:
        return ListenerKind.COLUMNS, dict
    if annotation is list or typing.get_origin(annotation) in {list, Sequence}:
        (inner,) = typing.get_args(annotation) or (Row,)
        return ListenerKind.BATCH, _argument(inner)
    return ListenerKind.SINGLE, _argument(annotation)


def _argument(annotation: Any) -> Any:
    if annotation is Any or annotation is Row:
        return Row
    if annotation is dict or typing.get_origin(annotation) is dict:
        return dict
    return annotation


def _returned(function: Callable[..., Any], hints: dict[str, Any], kind: ListenerKind) -> Any:
    found = hints.get("return", UNSAID)
    if kind is not ListenerKind.SINGLE and typing.get_origin(found) in {list, Sequence}:
        (found,) = typing.get_args(found)
        return _without_errors(found)
    if found is None or found is type(None):
        return None
    if found is UNSAID or found is Any or kind is not ListenerKind.SINGLE:
        of = "" if kind is ListenerKind.SINGLE else " for each row, as list[...]"
        raise ConfigError(
            f"{location_of(function)} does not say what it returns{of}: annotate it, or pass returns=, such as a "
            "pydantic model, a dataclass, int, or 'total double, note string'"
        )
    return found


def _without_errors(item: Any) -> Any:
    """Of `list[Answer | Exception]`, what is no error."""
    inner = [one for one in typing.get_args(item) if not (isinstance(one, type) and issubclass(one, BaseException))]
    return typing.Union[tuple(inner)] if inner and len(inner) < len(typing.get_args(item)) else item  # noqa: UP007


# --- on the way to the workers ---------------------------------------------------------------------------------------


def pack(function: RowFunction) -> bytes:
    """As Spark ships any function: those of a script or a notebook by value, those of a module by name."""
    try:
        return bytes(cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"{function} cannot be shipped to Spark's workers: {reason}. It refers to an object that exists only in "
            "this process, such as a connection, a lock or the Spark session: make it inside the function, or in a "
            "module that workers import"
        ) from error


def unpack(packed: bytes) -> RowFunction:
    try:
        found = pickle.loads(packed)  # noqa: S301 - packed by the driver of this job
    except ImportError as error:
        raise ConfigError(
            f"Spark's worker cannot import what the function needs: {error}. Install it where workers run, or ship it "
            "with spark.addArtifacts or spark.submit.pyFiles"
        ) from error
    assert isinstance(found, RowFunction)  # noqa: S101
    _mend(found.argument, set())
    return found


def _mend(kind: Any, seen: set[Any]) -> None:
    """A dataclass that came by value has a copy of the mark for "no default" (`dataclasses.MISSING`), which is taken
    for a default."""
    for inner in typing.get_args(kind):
        _mend(inner, seen)
    if not isinstance(kind, type) or not is_dataclass(kind) or kind in seen:
        return
    seen.add(kind)
    for field in fields(kind):
        for name in ("default", "default_factory"):
            if type(getattr(field, name)).__name__ == type(MISSING).__name__:
                setattr(field, name, MISSING)
    for inner in typing.get_type_hints(kind).values():
        _mend(inner, seen)
