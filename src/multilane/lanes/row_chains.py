"""Chains whose records wait as rows, for lanes that take windows and do not look at single records before.

Thread: none (pure); one owner.

The rules are those of `chains`: records of one key are in one window at a time, in log order. Consumers that must look
at each record when it is taken in (routing, due times, order across a retry topic, an ordering other than by key) use
`Chains` instead.

They cost 1,030 lines: this module and `wire/records/keyed_*`. What they earn, by `bench.lanes` (15 x 10 lanes, windows
of 50, one process; medians of seven runs, in turn with as many of the same code with `Chains` only, on two cores with
much other work): a record takes 1.63 us of CPU instead of 2.16 in a list (ratio 1.33), 1.54 instead of 3.24 in columns
(2.11), 1.72 instead of 2.61 in unique lists (1.52). Rates depended on the other work more than on the chains: 270,245
records/s instead of 219,826 (1.23), 320,168 instead of 171,228 (1.87), 231,580 instead of 246,429 (0.94).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Never, cast

from multilane.lanes.intake import Piece
from multilane.wire.records.keyed_rows import KeyedRows, TakenRows
from multilane.wire.records.record import Record


class RowChains:
    __slots__ = ("_newest", "_rows", "on_defer")
    takes_back: ClassVar = False

    def __init__(self, topic: str, partition: int, lanes: int, *, newest: bool = False) -> None:
        """With `newest`, windows have only the newest row of each key and skip the older ones."""
        self._newest = newest
        self._rows = KeyedRows(topic, partition, lanes)
        self.on_defer: Callable[[float], object] = lambda due: None  # no row is deferred

    @property
    def takeable(self) -> int:
        return self._rows.takeable

    @property
    def singles(self) -> None:
        return None

    def put_piece(self, piece: Piece, now: float) -> None:
        self._rows.put(piece.block, piece.fresh, is_last=piece.is_last)

    def put(self, records: Iterable[Record], now: float) -> Never:
        raise AssertionError("a record cannot become a row: records that are looked at first wait in chains")

    put_rested = put

    def release_held(self, record: Record, now: float) -> None:
        """No row waits for a record in flight elsewhere: consumers that hold keys have chains."""

    def release_frames(self) -> None:
        self._rows.release_frame()

    def wake(self, now: float) -> None:
        """No row is deferred."""

    def bring_first(self, *, failed: bool) -> bool:
        """Rows that failed stay with their lanes: no row that waits here has failed."""
        return not failed and self.takeable > 0

    def take(self, most: int, now: float, *, one_each: bool = False) -> TakenRows:
        return self._rows.take(most, newest=self._newest)

    def release_all(self, records: Sequence[Record], now: float, again: Sequence[Record] = ()) -> None:
        """`records` is what `take` returned."""
        if again:
            raise AssertionError("a row cannot be put back: records that are retried in place wait in chains")
        self._rows.release(cast("TakenRows", records))
