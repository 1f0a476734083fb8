"""The offsets of one partition that were handed out and are not settled, in rising order; kept in one of two ways.

Thread: none (pure); one owner.

`OpenOnes` for work that settles one at a time: a dict keeps its order, and to settle is the dict's own deletion.
`OpenArray` for work that settles many at once: a sorted array and a flag for each. Settling what was not handed out, or
is settled already, raises KeyError.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

Offsets = Sequence[int] | npt.NDArray[np.int64]
_FIRST_ROOM: Final = 1024
_NONE: Final = -1


class OpenOffsets(Protocol):
    @property
    def settle(self) -> Callable[[int], None]: ...
    def __len__(self) -> int: ...
    def __contains__(self, offset: int) -> bool: ...
    def extend(self, offsets: Offsets) -> None:
        """All of them above those before."""

    def settle_all(self, offsets: Offsets) -> None: ...
    def first(self) -> int | None: ...
    def column(self) -> npt.NDArray[np.int64]: ...


class OpenOnes:
    __slots__ = ("_open", "settle")

    def __init__(self) -> None:
        self._open: dict[int, None] = {}
        self.settle: Callable[[int], None] = self._open.__delitem__

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, offset: int) -> bool:
        return offset in self._open

    def extend(self, offsets: Offsets) -> None:
        self._open.update(dict.fromkeys(offsets.tolist() if isinstance(offsets, np.ndarray) else offsets))

    def settle_all(self, offsets: Offsets) -> None:
        deque(map(self.settle, offsets), maxlen=0)

    def first(self) -> int | None:
        return next(iter(self._open), None)

    def column(self) -> npt.NDArray[np.int64]:
        return np.fromiter(self._open, np.int64, len(self._open))


class OpenArray:
    __slots__ = ("_first", "_is_open", "_last", "_offsets")

    def __init__(self) -> None:
        self._offsets = np.empty(_FIRST_ROOM, np.int64)
        self._is_open = np.zeros(_FIRST_ROOM, np.bool_)
        self._first = self._last = 0  # what is before the first is settled
        self._offsets[0] = _NONE  # there is always one behind the last, which is none

    def __len__(self) -> int:
        return int(np.count_nonzero(self._is_open[self._first : self._last]))

    def __contains__(self, offset: int) -> bool:
        at = self._places(np.array([offset]))[0]
        return bool(self._offsets[at] == offset and self._is_open[at])

    def extend(self, offsets: Offsets) -> None:
        many = len(offsets)
        if self._last + many >= len(self._offsets):
            self._make_room(many)
        self._offsets[self._last : self._last + many] = offsets
        self._is_open[self._last : self._last + many] = True
        self._last += many
        self._offsets[self._last] = _NONE

    def _make_room(self, many: int) -> None:
        self._pass_settled()
        kept = self._last - self._first
        room = len(self._offsets)
        while room < 2 * (kept + many + 1):
            room *= 2
        offsets, is_open = np.empty(room, np.int64), np.zeros(room, np.bool_)
        offsets[:kept] = self._offsets[self._first : self._last]
        is_open[:kept] = self._is_open[self._first : self._last]
        self._offsets, self._is_open, self._first, self._last = offsets, is_open, 0, kept

    def _pass_settled(self) -> None:
        is_open = self._is_open[self._first : self._last]
        if len(is_open):
            passed = int(is_open.argmax())
            self._first += passed if is_open[passed] else len(is_open)

    def settle(self, offset: int) -> None:
        self.settle_all((offset,))

    def settle_all(self, offsets: Offsets) -> None:
        wanted = np.asarray(offsets, np.int64)
        at = self._places(wanted)
        is_open = (self._offsets[at] == wanted) & self._is_open[at]
        if not is_open.all():
            raise KeyError(int(wanted[is_open.argmin()]))
        self._is_open[at] = False

    def _places(self, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        return self._offsets[self._first : self._last].searchsorted(wanted) + self._first

    def first(self) -> int | None:
        self._pass_settled()
        return int(self._offsets[self._first]) if self._first < self._last else None

    def column(self) -> npt.NDArray[np.int64]:
        return self._offsets[self._first : self._last][self._is_open[self._first : self._last]]
