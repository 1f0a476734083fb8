"""Reads the signature of a user's function once, when it is registered: what it has to be called with.

Thread: none (pure).

Owns the rules. Annotations decide: a function with a `Record` or a payload type is called for each record, a function
with a list for several at once, a function with a `pyarrow.RecordBatch` for several as columns. It may also ask for the
record, the context and the acknowledgement, by annotation and in any order. A signature that does not fit is refused
here, with the function's source location.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from multilane.errors import ConfigError
from multilane.listeners.acknowledgement import Acknowledgement
from multilane.listeners.context import Context
from multilane.listeners.registered import format_of
from multilane.wire.records.record import Record


class ListenerKind(Enum):
    """How many records a call gets, and in which form."""

    SINGLE = "single"
    BATCH = "batch"
    COLUMNS = "columns"


class Wants(Enum):
    """What one parameter receives."""

    RECORD = "record"
    RECORDS = "records"
    PAYLOAD = "payload"
    PAYLOADS = "payloads"
    COLUMNS = "columns"
    CONTEXT = "context"
    ACKNOWLEDGEMENT = "acknowledgement"


_BATCH = frozenset({Wants.RECORDS, Wants.PAYLOADS})
_SINGLE = frozenset({Wants.RECORD, Wants.PAYLOAD})


@dataclass(frozen=True, slots=True)
class Signature:
    kind: ListenerKind
    is_async: bool
    parameters: tuple[tuple[str, Wants], ...]  # in the function's order
    payload: Any = None  # the type that values are decoded into

    def wants(self, what: Wants) -> bool:
        return any(wanted is what for _, wanted in self.parameters)


def read_signature(function: Callable[..., Any]) -> Signature:
    """The signature of a listener. Raises ConfigError with what to write instead."""
    inner = function.func if isinstance(function, functools.partial) else function
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigError(f"{location_of(function)} is a generator: its body would never run; return instead of yield")
    parameters: list[tuple[str, Wants]] = []
    payload: Any = None
    for parameter, annotation in _annotated(function):
        wanted, named = _meaning(annotation)
        if wanted in {w for _, w in parameters} or (named is not None and payload is not None):
            raise ConfigError(f"{location_of(function)}: {parameter!r} asks for the {wanted.value} a second time")
        payload = named if named is not None else payload
        parameters.append((parameter, wanted))
    return Signature(_kind(function, parameters), is_async(function), tuple(parameters), payload)


def is_async(function: Callable[..., Any]) -> bool:
    inner = function.func if isinstance(function, functools.partial) else function
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


def location_of(function: Callable[..., Any]) -> str:
    """The name and source location of the function that it is, or wraps, for messages."""
    unwrapped = inspect.unwrap(function)
    inner = unwrapped.func if isinstance(unwrapped, functools.partial) else unwrapped
    code = getattr(inner, "__code__", None)
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


def _annotated(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """(name, type) of the required parameters. An annotation that cannot be resolved is refused."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ConfigError(f"{function!r} has no signature: write a function with the parameters it needs") from None
    source = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        hints, full = typing.get_type_hints(source), typing.get_type_hints(source, include_extras=True)
    except Exception as error:
        raise ConfigError(
            f"{location_of(function)}: cannot resolve its annotations: {error}. Import the annotated types "
            "at run time, not only under TYPE_CHECKING"
        ) from error
    wanted = [p for p in parameters if p.default is p.empty and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}]
    for parameter in wanted:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ConfigError(f"{location_of(function)}: {parameter.name!r} is positional-only; remove the slash")
    return [(p.name, _with_format(full[p.name]) or hints[p.name] if p.name in hints else Record) for p in wanted]


def _with_format(annotation: Any) -> Any:
    """The annotation, if it names the format of a payload; else None: what else it holds is for other tools."""
    found = format_of(annotation)
    if found is not None and typing.get_origin(found[0]) in {list, Sequence}:
        return list[typing.Annotated[typing.get_args(found[0])[0], found[1]]]  # type: ignore[misc]
    inner = typing.get_args(annotation) if typing.get_origin(annotation) in {list, Sequence} else (annotation,)
    return annotation if inner and format_of(inner[0]) is not None else None


def _meaning(annotation: Any) -> tuple[Wants, Any]:
    """What a parameter with this annotation receives, and the payload type that it names."""
    plain = {Record: Wants.RECORD, Context: Wants.CONTEXT, Acknowledgement: Wants.ACKNOWLEDGEMENT}
    if isinstance(annotation, type) and annotation in plain:
        return plain[annotation], None
    if _is_record_batch(annotation):
        return Wants.COLUMNS, None
    if annotation is list or typing.get_origin(annotation) in {list, Sequence}:
        (inner,) = typing.get_args(annotation) or (Record,)
        return (Wants.RECORDS, None) if inner is Record else (Wants.PAYLOADS, inner)
    return Wants.PAYLOAD, annotation


def _is_record_batch(annotation: Any) -> bool:
    """Without importing pyarrow: a module that names its class has imported it."""
    module = getattr(annotation, "__module__", "") or ""
    return module.split(".")[0] == "pyarrow" and getattr(annotation, "__name__", "") == "RecordBatch"


def _kind(function: Callable[..., Any], parameters: list[tuple[str, Wants]]) -> ListenerKind:
    wanted = {wants for _, wants in parameters}
    found = [
        kind
        for kind, of_it in (
            (ListenerKind.SINGLE, _SINGLE),
            (ListenerKind.BATCH, _BATCH),
            (ListenerKind.COLUMNS, {Wants.COLUMNS}),
        )
        if wanted & of_it
    ]
    if len(found) == 1:
        return found[0]
    which = "neither a record nor a batch" if not found else "records one by one and in batches"
    raise ConfigError(
        f"{location_of(function)} asks for {which}: give it one parameter of type Record, a payload type, "
        "list[Record], or pyarrow.RecordBatch"
    )
