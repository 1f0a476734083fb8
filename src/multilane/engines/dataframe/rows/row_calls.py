"""What the lanes call for records that stand for rows: looks up the rows, calls the caller's function, keeps results.

Thread: loop; a `def` function runs on the lanes' threads.

A batch is handed on as columns, whatever the function takes, so that no record is made of a row that waits. Owns
nothing: results are the store's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from multilane.engines.dataframe.rows.arguments import Arguments
from multilane.engines.dataframe.rows.function import RowFunction
from multilane.engines.dataframe.rows.row_store import RowPiece, RowStore
from multilane.errors import UndecodablePayload, WrongResult
from multilane.listeners.signature import ListenerKind, Signature, Wants
from multilane.wire.records.record import Record

_Place = tuple[RowPiece, int]
_Failures = dict[int, BaseException]  # by index in the batch


def listener_of(function: RowFunction, arguments: Arguments, store: RowStore) -> tuple[Callable[..., Any], Signature]:
    """A function for the lanes, and its signature."""
    if function.kind is ListenerKind.SINGLE:
        single = (_single_async if function.is_async else _single)(function.function, arguments, store)
        signature = Signature(ListenerKind.SINGLE, function.is_async, (("record", Wants.RECORD),))
        return _naming(single, function), signature
    calls = _BatchCalls(function, arguments, store)
    signature = Signature(ListenerKind.COLUMNS, function.is_async, (("records", Wants.COLUMNS),))
    call = calls.call_async if function.is_async else calls.call
    return _naming(functools.partial(call), function), signature  # its attributes can be set


def _naming(call: Callable[..., Any], function: RowFunction) -> Callable[..., Any]:
    """Messages name the caller's function, and where it is."""
    return functools.update_wrapper(call, function.function, ("__name__", "__qualname__"), ())


def _single_async(function: Callable[..., Any], arguments: Arguments, store: RowStore) -> Callable[[Record], Any]:
    at, argument = store.at, arguments.of

    async def call(record: Record) -> None:
        piece, row = at(record.offset)
        piece.attempts[row] += 1
        piece.results[row] = await function(argument(piece.values[row]))

    return call


def _single(function: Callable[..., Any], arguments: Arguments, store: RowStore) -> Callable[[Record], Any]:
    at, argument = store.at, arguments.of

    def call(record: Record) -> Any:
        piece, row = at(record.offset)
        piece.attempts[row] += 1
        result = function(argument(piece.values[row]))
        if inspect.isawaitable(result):  # a `def` function that wraps a coroutine function
            return _awaited(result, piece, row)
        piece.results[row] = result
        return None

    return call


async def _awaited(result: Any, piece: RowPiece, row: int) -> None:
    piece.results[row] = await result


class _BatchCalls:
    """For functions that take several rows."""

    def __init__(self, function: RowFunction, arguments: Arguments, store: RowStore) -> None:
        self._function = function
        self._arguments = arguments
        self._store = store

    async def call_async(self, records: pa.RecordBatch) -> _Failures:
        places, failures = self._places(records), _Failures()
        given = self._given(places, failures)
        if len(failures) < len(places):
            self._keep(places, failures, await self._function.function(given))
        return failures

    def call(self, records: pa.RecordBatch) -> Any:
        places, failures = self._places(records), _Failures()
        given = self._given(places, failures)
        if len(failures) == len(places):
            return failures
        returned = self._function.function(given)
        if inspect.isawaitable(returned):
            return self._keep_awaited(places, failures, returned)
        self._keep(places, failures, returned)
        return failures

    async def _keep_awaited(self, places: Sequence[_Place], failures: _Failures, returned: Any) -> _Failures:
        self._keep(places, failures, await returned)
        return failures

    def _places(self, records: pa.RecordBatch) -> list[_Place]:
        places = [self._store.at(number) for number in records.column("offset").to_pylist()]
        for piece, row in places:
            piece.attempts[row] += 1
        return places

    def _given(self, places: Sequence[_Place], failures: _Failures) -> Any:
        """What the function gets. Rows that do not fit the model are left out, and are `failures`."""
        if self._function.kind is ListenerKind.COLUMNS:
            return _columns(places)
        given = []
        for at, (piece, row) in enumerate(places):
            try:
                given.append(self._arguments.of(piece.values[row]))
            except UndecodablePayload as error:
                failures[at] = error
        return given

    def _keep(self, places: Sequence[_Place], failures: _Failures, returned: Any) -> None:
        results = _listed(returned, self._function)
        given = [(at, place) for at, place in enumerate(places) if at not in failures]
        if results is None:
            results = [None] * len(given)
        if len(results) != len(given):
            raise WrongResult(
                f"{self._function} returned {len(results)} results for {len(given)} rows: return one each"
            )
        for (at, (piece, row)), result in zip(given, results, strict=True):
            if isinstance(result, BaseException):
                failures[at] = result
            else:
                piece.results[row] = result


def _columns(places: Sequence[_Place]) -> pa.RecordBatch:
    by_piece: list[tuple[RowPiece, list[int]]] = []
    for piece, row in places:
        if not by_piece or by_piece[-1][0] is not piece:
            by_piece.append((piece, []))
        by_piece[-1][1].append(row)
    taken = [piece.batch.take(pa.array(rows)) for piece, rows in by_piece]
    return taken[0] if len(taken) == 1 else pa.Table.from_batches(taken).combine_chunks().to_batches()[0]


def _listed(returned: Any, function: RowFunction) -> Sequence[Any] | None:
    """One result for each row; None if the function returns nothing."""
    if returned is None or isinstance(returned, list | tuple):
        return returned
    for method in ("to_pylist", "tolist"):  # of Arrow; of NumPy and pandas
        if (listed := getattr(returned, method, None)) is not None:
            found: list[Any] = listed()
            return found
    raise WrongResult(
        f"{function} returned {type(returned).__name__}: return a list, or an Arrow array, of the results"
    )
