"""The progress of one partition that workers process: what they reported as settled, less what is not settled yet.

Thread: none (pure); one owner.

A lease begins at a start: everything below an offset is settled, and so are runs beyond it. The worker reports how that
grows. Two sets of offsets are kept apart: those still in flight at a former worker (held), which the next worker must
not begin and sees as settled; and those that a former worker has abandoned (undone), which the next lease includes.

All of it belongs to one log, identified by the newest leader epoch that a worker has read. The next worker checks the
log before it skips anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from multilane.commit.ledger import CommitPoint
from multilane.commit.runs import Run, SettledOffsets
from multilane.lanes.assignment import Start
from multilane.types import NO_EPOCH


class RemoteProgress:
    __slots__ = ("_end_epoch", "_epoch", "_held", "_reported", "_undone")

    def __init__(self, start: Start) -> None:
        self._reported: SettledOffsets = (start.offset, start.runs)
        self._epoch = start.leader_epoch
        self._end_epoch = start.end_epoch
        self._held: set[int] = set()
        self._undone: set[int] = set()

    @property
    def point(self) -> CommitPoint:
        """What may be committed."""
        offset, runs = without(self._reported, self._held | self._undone)
        return CommitPoint(offset, self._epoch_at(offset), runs, self._end_epoch)

    @property
    def begins(self) -> int:
        """The first offset that the next worker would process."""
        return self._start()[0]

    def grant(self) -> CommitPoint:
        """The start of the next worker."""
        start = self._start()
        self._epoch = self._epoch_at(start[0])
        self._reported = start
        self._undone.clear()
        return CommitPoint(start[0], self._epoch, start[1], self._end_epoch)

    def _epoch_at(self, offset: int) -> int:
        """The leader epoch of the record before, or a newer one that was read in this log. A log that was truncated
        below has neither up to here; without an epoch the truncation would go unnoticed."""
        is_known = self._epoch != NO_EPOCH and offset <= self._reported[0]
        return self._epoch if is_known else self._end_epoch

    def _start(self) -> SettledOffsets:
        return including(without(self._reported, self._undone), self._held)

    def note(self, point: CommitPoint) -> None:
        """The worker has got this far. If its offset has not moved, it does not know the leader epoch there."""
        if point.offset != self._reported[0] or point.leader_epoch != NO_EPOCH:
            self._epoch = point.leader_epoch
        if point.end_epoch != NO_EPOCH:
            self._end_epoch = point.end_epoch
        self._reported = (point.offset, point.runs)

    def forget_from(self, offset: int) -> None:
        """Held and undone offsets from here on, and the known epochs, belong to a log that does not exist any more."""
        self._end_epoch = NO_EPOCH
        self._held = {held for held in self._held if held < offset}
        self._undone = {undone for undone in self._undone if undone < offset}

    def hold(self, offsets: Iterable[int]) -> None:
        """The worker has returned the partition, and still processes these."""
        self._held.update(offsets)

    def release(self, offset: int, *, is_settled: bool) -> None:
        """The former worker no longer processes this one."""
        self._held.discard(offset)
        if is_settled:
            reported = including(self._reported, {offset})
            self._epoch = self._epoch_at(reported[0])
            self._reported = reported
        else:
            self._undone.add(offset)


def without(start: SettledOffsets, unsettled: Collection[int]) -> SettledOffsets:
    """The same, with these offsets not settled."""
    offset, runs = start
    if not unsettled:
        return start
    lowest = min(offset, *unsettled)
    left = deque(sorted(unsettled))
    pieces: list[Run] = []
    for first, last in [(lowest, offset - 1), *runs] if lowest < offset else runs:
        begin = first
        while left and left[0] <= last:
            gap = left.popleft()
            if begin < gap:
                pieces.append((begin, gap - 1))
            begin = max(begin, gap + 1)
        if begin <= last:
            pieces.append((begin, last))
    return lowest, tuple(pieces)


def including(start: SettledOffsets, settled: Collection[int]) -> SettledOffsets:
    """The same, with these offsets settled."""
    offset, runs = start
    if not settled:
        return start
    merged: list[Run] = []
    for first, last in sorted([*runs, *((one, one) for one in settled if one >= offset)]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    if merged and merged[0][0] == offset:
        offset = merged.pop(0)[1] + 1
    return offset, tuple(merged)
