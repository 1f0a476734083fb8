"""A team's partitions in the audit: how far they may be begun before the next file says that they may.

Thread: loop (one owner).

A file of accounts says up to which offset each partition may be begun; a partition is not taken in beyond it. So when a
process is killed the files tell what it may have handled without an account. The allowance doubles where it is used up
before the next commit brings more, and halves where most of it is not used: it is what a kill leaves in doubt. Owns the
bounds of its intakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final
from uuid import UUID

from multilane.audit.books import ReadLog, Stretch
from multilane.commit.completion_map import LogMark
from multilane.lanes.intake import Intake
from multilane.types import NO_EPOCH, TopicPartition

UNBOUNDED: Final = 1 << 62
LEAST_AHEAD: Final = 256
_MOST_AHEAD: Final = 1 << 20
_USED: Final = 8  # less than this part of it, from one file to the next, is too little


class BeginBounds:
    def __init__(
        self,
        intakes: Mapping[TopicPartition, Intake],
        on_low: Callable[[], object],
        topic_ids: Mapping[TopicPartition, UUID | None] | None = None,
    ) -> None:
        """`on_low` is called when an allowance is half used up."""
        self._intakes = intakes
        self._topic_ids = topic_ids or {}
        self._ahead = dict.fromkeys(intakes, LEAST_AHEAD)
        self._before = {partition: intake.next_offset for partition, intake in intakes.items()}  # at the last file
        self._on_low = on_low
        self.on_allowed: Callable[[], object] = lambda: None
        for partition, intake in intakes.items():
            intake.on_low = lambda partition=partition: self._grow(partition)  # type: ignore[misc]
            if intake.ledger.position >= 0:
                intake.bound = intake.ledger.position  # nothing, until a file says so
        self._grown_at = {partition: intake.bound for partition, intake in intakes.items()}  # not again at this bound

    def _grow(self, partition: TopicPartition) -> None:
        intake = self._intakes[partition]
        intake.low = inf
        if intake.bound != self._grown_at[partition]:  # whoever waits at a bound asks many times before it moves
            self._grown_at[partition] = intake.bound
            self._ahead[partition] = min(_MOST_AHEAD, 2 * self._ahead[partition])
        self._on_low()

    def stretches(self) -> list[Stretch]:
        """What may be begun when these are written, and is not settled."""
        made = []
        for partition, intake in self._intakes.items():
            place = intake.ledger.commit_point()
            made.append(Stretch(partition, max(0, place.offset), self._bound(partition, intake), place.runs))
        return made

    def logs(self) -> list[ReadLog]:
        """Which logs were read, as far as that is known, and how far."""
        made = []
        for partition, intake in self._intakes.items():
            epoch = intake.ledger.end_epoch
            if epoch != NO_EPOCH:
                mark = LogMark(epoch, self._topic_ids.get(partition))
                made.append(ReadLog(partition, intake.ledger.position, mark))
        return made

    def _bound(self, partition: TopicPartition, intake: Intake) -> int:
        if intake.ledger.position < 0:
            return UNBOUNDED  # where it begins is not known before its first block
        used, self._before[partition] = intake.next_offset - self._before[partition], intake.next_offset
        if used * _USED < self._ahead[partition]:
            self._ahead[partition] = max(LEAST_AHEAD, self._ahead[partition] // 2)
        bound = int(max(intake.next_offset + self._ahead[partition], 0 if intake.bound == inf else intake.bound))
        if intake.bound == inf:
            intake.bound = bound
        return bound

    def allow(self, stretches: Iterable[Stretch]) -> None:
        """The file that says so is written."""
        for stretch in stretches:
            intake = self._intakes[stretch.partition]
            if stretch.end != UNBOUNDED and intake.bound <= stretch.end:
                intake.bound = stretch.end
                intake.low = stretch.end - self._ahead[stretch.partition] / 2
        self.on_allowed()

    def end(self) -> None:
        for intake in self._intakes.values():
            intake.on_low = lambda: None
