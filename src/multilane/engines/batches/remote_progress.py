"""The account of one partition while its lanes are elsewhere: what was told to be settled, and what is not after all.

Thread: none (pure); one owner.

A partition is lent with a start: everything below an offset is settled, and runs beyond it. Whoever has it tells how
that grows. Two things are apart from it: offsets that an earlier borrower is still at (held), which the next one must
not begin and is told to be settled; and those that such a borrower gave up (undone), which come with the next loan.

All of it is of one log, as far as the newest leader epoch that a borrower has read: the next one checks that before it
passes over anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from multilane.commit.completion_map import Run
from multilane.commit.ledger import CommitPoint
from multilane.lanes.assignment import Start
from multilane.types import NO_EPOCH

Settled = tuple[int, tuple[Run, ...]]  # everything below is, and these runs beyond it


class RemoteProgress:
    __slots__ = ("_end_epoch", "_epoch", "_held", "_told", "_undone")

    def __init__(self, start: Start) -> None:
        self._told: Settled = (start.offset, start.runs)
        self._epoch = start.leader_epoch
        self._end_epoch = start.end_epoch
        self._held: set[int] = set()
        self._undone: set[int] = set()

    @property
    def place(self) -> CommitPoint:
        """What may be committed."""
        offset, runs = without(self._told, self._held | self._undone)
        return CommitPoint(offset, self._epoch_at(offset), runs, self._end_epoch)

    @property
    def begins(self) -> int:
        """The first offset that a borrower would have to look at."""
        return self._start()[0]

    def lend(self) -> CommitPoint:
        """Where the next borrower begins."""
        start = self._start()
        self._epoch = self._epoch_at(start[0])
        self._told = start
        self._undone.clear()
        return CommitPoint(start[0], self._epoch, start[1], self._end_epoch)

    def _epoch_at(self, offset: int) -> int:
        """The leader epoch of the record before, or a newer one that was read in this log: a log that was cut below
        has neither up to here, and without one nobody would notice."""
        is_known = self._epoch != NO_EPOCH and offset <= self._told[0]
        return self._epoch if is_known else self._end_epoch

    def _start(self) -> Settled:
        return including(without(self._told, self._undone), self._held)

    def tell(self, place: CommitPoint) -> None:
        """The borrower is here by now. One that has not got on does not know the leader's epoch here."""
        if place.offset != self._told[0] or place.leader_epoch != NO_EPOCH:
            self._epoch = place.leader_epoch
        if place.end_epoch != NO_EPOCH:
            self._end_epoch = place.end_epoch
        self._told = (place.offset, place.runs)

    def forget_from(self, offset: int) -> None:
        """What is held or undone from there on is of a log that is no more. So is what was known of its epochs."""
        self._end_epoch = NO_EPOCH
        self._held = {one for one in self._held if one < offset}
        self._undone = {one for one in self._undone if one < offset}

    def hold(self, offsets: Iterable[int]) -> None:
        """The borrower has given the partition back, and is still at these."""
        self._held.update(offsets)

    def release(self, offset: int, *, is_settled: bool) -> None:
        """It is not at this one any more."""
        self._held.discard(offset)
        if is_settled:
            told = including(self._told, {offset})
            self._epoch = self._epoch_at(told[0])
            self._told = told
        else:
            self._undone.add(offset)


def without(start: Settled, gone: Collection[int]) -> Settled:
    """The same, with these not settled."""
    offset, runs = start
    if not gone:
        return start
    lowest = min(offset, *gone)
    left = deque(sorted(gone))
    pieces: list[Run] = []
    for first, last in [(lowest, offset - 1), *runs] if lowest < offset else runs:
        begin = first
        while left and left[0] <= last:
            one = left.popleft()
            if begin < one:
                pieces.append((begin, one - 1))
            begin = max(begin, one + 1)
        if begin <= last:
            pieces.append((begin, last))
    return lowest, tuple(pieces)


def including(start: Settled, more: Collection[int]) -> Settled:
    """The same, with these settled."""
    offset, runs = start
    if not more:
        return start
    merged: list[Run] = []
    for first, last in sorted([*runs, *((one, one) for one in more if one >= offset)]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    if merged and merged[0][0] == offset:
        offset = merged.pop(0)[1] + 1
    return offset, tuple(merged)
