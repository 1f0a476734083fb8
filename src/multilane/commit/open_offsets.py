"""The offsets of one partition that were handed out and are not settled, in rising order, in one of two containers.

Thread: none (pure); one owner.

`OpenDict` is for records that are settled one at a time: a dict keeps its order, and settling is the dict's own
deletion. `OpenArray` is for records that are settled in bulk: a sorted array with a flag for each. Settling an offset
that was not handed out, or is settled already, raises KeyError.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from multilane.wire.records.keyed_storage import Flagged, Packed
from multilane.wire.records.loading import kernels
from multilane.wire.records.made_once import Cut

OffsetSeries = Sequence[int] | npt.NDArray[np.int64] | Packed | Cut


class OpenOffsets(Protocol):
    @property
    def settle(self) -> Callable[[int], None]: ...
    @property
    def count(self) -> Callable[[], int]: ...
    def __contains__(self, offset: int) -> bool: ...
    def extend(self, offsets: OffsetSeries) -> None:
        """Add offsets, all of them above the previous ones."""

    def settle_all(self, offsets: OffsetSeries) -> None: ...
    def first(self) -> int | None: ...
    def column(self) -> npt.NDArray[np.int64]: ...


class OpenDict:
    __slots__ = ("_open", "count", "settle")

    def __init__(self) -> None:
        self._open: dict[int, None] = {}
        self.count: Callable[[], int] = self._open.__len__
        self.settle: Callable[[int], None] = self._open.__delitem__

    def __contains__(self, offset: int) -> bool:
        return offset in self._open

    def extend(self, offsets: OffsetSeries) -> None:
        self._open.update(offsets.open_offsets() if isinstance(offsets, Cut) else dict.fromkeys(_listed(offsets)))

    def settle_all(self, offsets: OffsetSeries) -> None:
        deque(map(self.settle, _listed(offsets)), maxlen=0)

    def first(self) -> int | None:
        return next(iter(self._open), None)

    def column(self) -> npt.NDArray[np.int64]:
        return np.fromiter(self._open, np.int64, len(self._open))


def _listed(offsets: OffsetSeries) -> Iterable[int]:
    if isinstance(offsets, Packed | Cut):
        offsets = offsets.column()
    return offsets.tolist() if isinstance(offsets, np.ndarray) else offsets


class OpenArray:
    __slots__ = ("_clear_flags", "_count", "_first", "_flagged", "_last")

    first_room: ClassVar = 1024

    def __init__(self) -> None:
        self._flagged = Flagged(self.first_room)  # a flag for each offset that is open
        self._first = self._last = self._count = 0  # all offsets before _first are settled
        self._clear_flags = kernels().keyed.clear_flags

    def count(self) -> int:
        return self._count

    def __contains__(self, offset: int) -> bool:
        return offset in self.column()

    def extend(self, offsets: OffsetSeries) -> None:
        many = len(offsets)
        if self._last + many > len(self._flagged.values):
            self._make_room(many)
        end = self._last + many
        self._flagged.values[self._last : end] = offsets.column() if isinstance(offsets, Packed | Cut) else offsets
        self._flagged.flags[self._last : end] = 1
        self._last = end
        self._count += many

    def _make_room(self, many: int) -> None:
        """Copies only the open offsets, wherever they are: one that stays open for a long time keeps no others here."""
        kept = self.column()
        self._flagged = Flagged(max(self.first_room, 2 * (len(kept) + many)))
        self._flagged.values[: len(kept)] = kept
        self._flagged.flags[: len(kept)] = 1
        self._first, self._last = 0, len(kept)

    def _skip_settled(self) -> None:
        """Moves _first to the first open offset, or to the end."""
        if not self._count:
            self._first = self._last
        else:
            self._first += int(self._flagged.flags[self._first : self._last].argmax())

    def settle(self, offset: int) -> None:
        self.settle_all((offset,))

    def settle_all(self, offsets: OffsetSeries) -> None:
        wanted = offsets.column() if isinstance(offsets, Cut) else offsets
        if not isinstance(wanted, Packed):
            wanted = Packed(np.asarray(wanted, np.int64).tobytes(), len(wanted))
        wrong = self._clear_flags(self._flagged, self._first, self._last, wanted)
        if wrong >= 0:
            raise KeyError(int(wanted.column()[wrong]))
        self._count -= len(wanted)

    def first(self) -> int | None:
        self._skip_settled()
        return int(self._flagged.values[self._first]) if self._count else None

    def column(self) -> npt.NDArray[np.int64]:
        here = slice(self._first, self._last)
        column: npt.NDArray[np.int64] = self._flagged.values[here][self._flagged.flags[here] == 1]
        return column
