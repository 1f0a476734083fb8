"""Chains whose records wait as rows, for lanes that take windows and need nothing of a record before it is handled.

Thread: none (pure); one owner.

The same rules as in `chains`: records of one key are in one window at a time, in the order of the log. What needs to
see each record when it is taken in (routing, waiting until it is due, order across a retry topic, another ordering than
by key) has `Chains` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from multilane.lanes.intake import Piece
from multilane.wire.records.keyed_rows import KeyedRows, TakenRows
from multilane.wire.records.record import Record


class RowChains:
    __slots__ = ("_newest", "_rows", "on_defer")

    def __init__(self, topic: str, partition: int, lanes: int, *, newest: bool = False) -> None:
        """With `newest` windows have the newest row of each key, and skip what was before it."""
        self._newest = newest
        self._rows = KeyedRows(topic, partition, lanes)
        self.on_defer: Callable[[float], object] = lambda due: None  # nothing is

    @property
    def takeable(self) -> int:
        return self._rows.takeable

    def put(self, piece: Piece) -> None:
        self._rows.put(piece.block, piece.fresh, is_last=piece.is_last)

    def let_go(self) -> None:
        self._rows.release_source()

    def bring_first(self, *, failed: bool) -> bool:
        """Rows that failed stay with their lanes, so none that waits here has."""
        return not failed and self.takeable > 0

    def take(self, most: int, now: float, *, one_each: bool = False) -> TakenRows:
        return self._rows.take(most, newest=self._newest)

    def release_all(self, records: Sequence[Record], now: float, again: Sequence[Record] = ()) -> None:
        """`records` is what `take` gave."""
        if again:
            raise AssertionError("a row cannot be put back: what is tried again in its place waits in chains")
        self._rows.release(cast("TakenRows", records))
