"""The waiting records of a lane class, whatever they wait as: what queues, supplies and lanes ask of them.

Thread: none (pure).

`Chains` has them as record objects, `RowChains` as rows. Lanes that take windows, and everything around lanes, use this
interface. Lanes that take one record at a time use `Chains` itself, because their loop binds its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol

from multilane.lanes.chains import Chains
from multilane.lanes.intake import Piece
from multilane.wire.records.record import Record


class WaitingRecords(Protocol):
    takes_back: ClassVar[bool]
    """Whether records that were taken can wait here again. Otherwise they rest in their lane."""
    on_defer: Callable[[float], object]
    """Called with the time at which a deferred record is due."""

    @property
    def takeable(self) -> int: ...
    @property
    def singles(self) -> Chains | None:
        """For lanes that take one record at a time; None if only windows can be taken."""

    def put_piece(self, piece: Piece, now: float) -> None: ...
    def put(self, records: Sequence[Record], now: float) -> None:
        """Records that something has looked at first."""

    def put_rested(self, records: Iterable[Record], now: float) -> None: ...
    def release_held(self, record: Record, now: float) -> None: ...
    def release_frames(self) -> None:
        """What waits here will wait for long: keep no frame of the log alive."""

    def wake(self, now: float) -> float | None: ...
    def bring_first(self, *, failed: bool) -> bool: ...
    def take(self, most: int, now: float, *, one_each: bool = False) -> Sequence[Record]: ...
    def release_all(self, records: Sequence[Record], now: float, again: Sequence[Record] = ()) -> None: ...
