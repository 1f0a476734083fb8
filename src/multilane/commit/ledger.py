"""The ledger of one partition: which offsets were handed out and are not settled, and so what may be committed.

Thread: none (pure); one owner.

The law: the committed offset is never above the lowest offset that was handed out and is not settled. No timer
overrides it. Nor is it ever above the position: runs beyond it that a previous owner settled are passed on unchanged,
and count only once the log was read up to there. The ledger knows only offsets that were handed out, so it never waits
for offsets that are absent from the log (compaction, transaction markers); when all is settled the frontier is the
position that the log was read up to.

Offsets are handed out in rising order. The frontier is the first open offset; the gaps between the open offsets beyond
it are the settled runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from multilane.commit.completion_map import MOST_RUNS
from multilane.commit.open_offsets import OffsetSeries, OpenArray, OpenDict, OpenOffsets
from multilane.commit.runs import Run
from multilane.commit.trigger_positions import Position
from multilane.types import NO_EPOCH


@dataclass(frozen=True, slots=True)
class CommitPoint:
    """What can be committed: everything below `offset` is settled, and `runs` beyond it. `leader_epoch` belongs to the
    record before `offset`; where that epoch is unknown, it is a newer one of the same log. `end_epoch` is the newest
    that was read. `positions` are those of the triggers that share the commit."""

    offset: int
    leader_epoch: int
    runs: tuple[Run, ...]
    end_epoch: int = NO_EPOCH
    positions: Mapping[str, Position] = field(default_factory=dict, hash=False)


class Ledger:
    __slots__ = (
        *("_done_epoch", "_epochs", "_open", "_start_epoch"),
        *("count", "done", "handed_out", "position", "settle", "settle_all"),
    )

    def __init__(
        self,
        position: int,
        done: Sequence[Run] = (),
        done_epoch: int = NO_EPOCH,
        start_epoch: int = NO_EPOCH,
        *,
        in_bulk: bool = False,
    ) -> None:
        """`position`: where reading begins; `start_epoch`: the leader epoch of the record before it. `done`: runs
        beyond it that a previous owner settled, who had read up to `done_epoch`. `in_bulk`: many records are settled at
        a time."""
        self.position = position
        self.handed_out = 0  # in total
        self._open: OpenOffsets = OpenArray() if in_bulk else OpenDict()
        self.count = self._open.count  # records that were handed out and are not settled
        # KeyError if the offset was not handed out, or is settled already. The container's own method, because it is
        # called for each record.
        self.settle = self._open.settle
        self.settle_all = self._open.settle_all
        self.done = tuple(done)  # beyond where reading began
        self._done_epoch = done_epoch
        self._start_epoch = start_epoch
        self._epochs: list[tuple[int, int]] = []  # (first offset, leader epoch), where it changes

    def __len__(self) -> int:
        """Records that were handed out and are not settled."""
        return self.count()

    def __contains__(self, offset: int) -> bool:
        return offset in self._open

    # --- handing out -------------------------------------------------------------------------------------------------

    def fresh(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_] | None:
        """Which of these are not settled already; None if all are fresh, which is nearly always the case."""
        if not self.done or not len(offsets) or int(offsets[0]) > self.done[-1][1]:
            return None
        firsts = np.array([first for first, _ in self.done])
        lasts = np.array([last for _, last in self.done])
        run = np.searchsorted(firsts, offsets, side="right") - 1
        settled = (run >= 0) & (offsets <= lasts[run])
        return ~settled if settled.any() else None

    @property
    def done_until(self) -> int:
        """The offset after the last run that was settled before."""
        return self.done[-1][1] + 1 if self.done else self.position

    def contradicts(self, leader_epoch: int) -> bool:
        """Whether no record that was settled before can have this epoch: the log was truncated, its records differ."""
        return bool(self.done) and NO_EPOCH < self._done_epoch < leader_epoch

    def forget_done(self) -> None:
        """Drop the runs that were settled before: they belong to a log that no longer exists."""
        self.done = ()

    def hand_out(self, offsets: OffsetSeries) -> None:
        """These offsets, in rising order, must be settled from now on."""
        self._open.extend(offsets)
        self.handed_out += len(offsets)

    def advance(self, position: int, leader_epoch: int = NO_EPOCH) -> None:
        """The log was read up to here; the epoch belongs to the last record before."""
        if position < self.position:
            raise ValueError(f"the position moves from {self.position} back to {position}")
        known = self._epochs[-1][1] if self._epochs else NO_EPOCH
        if position > self.position and known != leader_epoch:
            self._epochs.append((self.position, leader_epoch))
        self.position = position
        if self.done and position > self.done[-1][1]:
            self.done = ()

    # --- what may be committed ---------------------------------------------------------------------------------------

    @property
    def frontier(self) -> int:
        lowest = self._open.first()
        return self.position if lowest is None else lowest

    @property
    def mark(self) -> tuple[int, int, int]:
        """It differs whenever something was handed out, settled or passed."""
        return self.position, self.handed_out, self.count()

    @property
    def unsettled(self) -> tuple[int, ...]:
        return tuple(self._open.column().tolist())

    def commit_point(self, most_runs: int = MOST_RUNS) -> CommitPoint:
        """With no more runs than fit in a commit (default)."""
        frontier = self.frontier
        return CommitPoint(
            frontier, self._epoch_before(frontier), tuple(self._runs(frontier, most_runs)), self.end_epoch
        )

    @property
    def end_epoch(self) -> int:
        """The newest leader epoch that was read."""
        if self.done:
            return self._done_epoch
        return self._epochs[-1][1] if self._epochs else NO_EPOCH

    def _runs(self, frontier: int, most: int) -> list[Run]:
        """Offsets between two open ones are either settled or absent from the log."""
        edges = np.append(self._open.column(), self.position)
        gaps = np.flatnonzero(np.diff(edges) > 1)
        if len(gaps) > most:
            gaps = gaps[:most]
            return list(zip((edges[gaps] + 1).tolist(), (edges[gaps + 1] - 1).tolist(), strict=True))
        runs = list(zip((edges[gaps] + 1).tolist(), (edges[gaps + 1] - 1).tolist(), strict=True))
        for first, last in self.done:
            begin = max(first, self.position)
            if last < begin:
                continue
            if runs and runs[-1][1] + 1 == begin:  # the position is within this run
                begin = runs.pop()[0]
            runs.append((begin, last))
        # The frontier itself is never in the map, even if it was settled before.
        return [(max(first, frontier + 1), last) for first, last in runs if last > frontier]

    def _epoch_before(self, offset: int) -> int:
        """The epoch of the last record below the offset. Older epochs are not needed again. At the start of reading the
        epoch may be unknown; then the first epoch that was read is used instead. If the log has lost the record, that
        epoch, or the last one before it, ends below the offset, so the truncation is still detected."""
        index = bisect_left(self._epochs, (offset, NO_EPOCH)) - 1
        if index < 0:
            return self._epochs[0][1] if self._start_epoch == NO_EPOCH and self._epochs else self._start_epoch
        del self._epochs[:index]
        return self._epochs[0][1]
