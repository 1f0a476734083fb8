"""The rows of a task between Spark's input and its output: their columns, what calls returned, and how often.

Thread: the worker's own adds and takes; the loop and the lanes' threads look up rows and note results.

A row has the number that it has in the task. Rows are kept by pieces: a piece is what becomes one block for the lanes,
and one batch of the output. Each row belongs to one call at a time, so results need no lock; the index of the pieces is
replaced, never changed. Owns the pieces that were not taken.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from multilane.engines.dataframe.record_verdicts import RecordVerdict
from multilane.engines.dataframe.rows.result_columns import ResultColumn
from multilane.wire.records.arrow_rows import blocks_of
from multilane.wire.records.block import Block

DONE: Final = "done"
FAILED: Final = "failed"
ADDED: Final = ("result", "outcome", "error", "attempts")
MOST_ROWS: Final = 100_000  # of a task that were read and not returned
MOST_BYTES: Final = 64 * 1024 * 1024
_ROWS: Final = 2_048  # of a piece
_TIMESTAMP: Final = pa.timestamp("us", "UTC")

Make = Callable[[pa.RecordBatch], list[Any]]


class RowPiece:
    """Some rows that follow each other."""

    __slots__ = ("_make", "_values", "attempts", "batch", "bytes", "first", "results")

    def __init__(self, first: int, batch: pa.RecordBatch, make: Make) -> None:
        self.first: Final = first  # the number of its first row
        self.batch: Final = batch
        self.bytes: Final = batch.nbytes
        self.results: Final[list[Any]] = [None] * batch.num_rows
        self.attempts: Final = [0] * batch.num_rows  # calls
        self._make = make
        self._values: list[Any] | None = None

    @property
    def values(self) -> list[Any]:
        """For each row, what an argument is made of. Two threads may both make them, which does no harm."""
        values = self._values
        if values is None:
            values = self._values = self._make(self.batch)
        return values


class RowStore:
    def __init__(self, topic: str, task: int, make: Make, result: ResultColumn) -> None:
        """`topic`: what the lanes call these rows."""
        self._topic = topic
        self._task = task
        self._make = make
        self._result = result
        self._next = 0
        self._index: tuple[tuple[int, ...], tuple[RowPiece, ...]] = ((), ())
        self._rows = self._bytes = 0  # of the pieces that were not taken

    @property
    def is_full(self) -> bool:
        """Whether calls that take long hold up so many rows behind them that no more may come."""
        return self._rows >= MOST_ROWS or self._bytes >= MOST_BYTES

    # --- in ----------------------------------------------------------------------------------------------------------

    def add(self, batch: pa.RecordBatch, keys: pa.Array | None) -> Iterator[Block]:
        """Blocks of the rows, one for each piece, which is known when its block is. `keys`: of each row, as numbers;
        null for a row that waits for nobody."""
        for start in range(0, batch.num_rows, _ROWS):
            rows = batch.slice(start, _ROWS)
            piece = RowPiece(self._next, rows, self._make)
            firsts, pieces = self._index
            self._index = ((*firsts, piece.first), (*pieces, piece))
            self._next += rows.num_rows
            self._rows += rows.num_rows
            self._bytes += piece.bytes
            yield from blocks_of(self._records(piece, None if keys is None else keys.slice(start, _ROWS)))

    def _records(self, piece: RowPiece, keys: pa.Array | None) -> pa.RecordBatch:
        many = piece.batch.num_rows
        return pa.RecordBatch.from_pydict(
            {
                "key": pa.nulls(many, pa.binary()) if keys is None else _binary(keys),
                "value": pa.nulls(many, pa.binary()),
                "topic": pa.repeat(pa.scalar(self._topic), many),
                "partition": pa.repeat(pa.scalar(self._task, pa.int32()), many),
                "offset": pa.array(range(piece.first, piece.first + many), pa.int64()),
                "timestamp": pa.nulls(many, _TIMESTAMP),
            }
        )

    # --- during calls ------------------------------------------------------------------------------------------------

    def at(self, number: int) -> tuple[RowPiece, int]:
        """The row with this number: its piece, and its index there."""
        firsts, pieces = self._index
        piece = pieces[bisect_right(firsts, number) - 1]
        return piece, number - piece.first

    # --- out ---------------------------------------------------------------------------------------------------------

    def take(self, first: int, verdicts: Sequence[RecordVerdict]) -> tuple[pa.RecordBatch, dict[int, str]]:
        """The rows of the piece that begins there, with the added columns; and by number the rows whose results do not
        fit their type, with what is wrong."""
        piece, at = self.at(first)
        assert at == 0  # noqa: S101 - a block is a piece
        firsts, pieces = self._index
        left = [(number, one) for number, one in zip(firsts, pieces, strict=True) if one is not piece]
        self._index = (tuple(number for number, _ in left), tuple(one for _, one in left))
        self._rows -= len(piece.results)
        self._bytes -= piece.bytes
        results, errors = piece.results, [verdict.error for verdict in verdicts]
        failed = [at for at, verdict in enumerate(verdicts) if verdict.outcome.value != DONE]
        for row in failed:
            results[row] = None  # a call that has ended too late may have left one
        column, faults = self._result.column(results)
        for row, fault in faults.items():
            errors[row] = f"WrongResult: row {piece.first + row} of task {self._task}: {fault}"
        outcomes = _outcomes(len(results), {*failed, *faults})
        added = (column, outcomes, pa.array(errors, pa.string()), pa.array(piece.attempts, pa.int32()))
        names = [*piece.batch.schema.names, *ADDED]
        wrong = {piece.first + row: fault for row, fault in faults.items()}
        return pa.RecordBatch.from_arrays([*piece.batch.columns, *added], names=names), wrong


def _outcomes(rows: int, failed: Iterable[int]) -> pa.Array:
    which = list(failed)
    if not which:
        return pa.repeat(pa.scalar(DONE), rows)
    outcomes = [DONE] * rows
    for row in which:
        outcomes[row] = FAILED
    return pa.array(outcomes, pa.string())


def _binary(keys: pa.Array) -> pa.Array:
    """Numbers as the eight bytes that they are."""
    keys = pa.concat_arrays([keys])  # without the offset of a slice
    plain = pa.Array.from_buffers(pa.binary(8), len(keys), keys.buffers(), keys.null_count)
    return plain.cast(pa.binary())
