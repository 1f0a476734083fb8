"""How far the records of a processor's partitions may begin before the next audit file allows more.

Thread: loop (one owner).

An audit file lists up to which offset each partition may begin, and nothing is taken in beyond it. So after a kill the
files show which records the process may have handled without an audit record. The allowance doubles where it is used up
before the next commit, and halves where most of it is unused: after a kill, all of it is in doubt. Owns the bounds of
its intakes. Never writes a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final
from uuid import UUID

from multilane.audit.completeness import OpenRange, ReadLog
from multilane.commit.completion_map import LogIdentity
from multilane.lanes.intake import Intake
from multilane.types import NO_EPOCH, TopicPartition

UNBOUNDED: Final = 1 << 62
MIN_AHEAD: Final = 256
_MAX_AHEAD: Final = 1 << 20
_USED: Final = 8  # the allowance halves if less than one part in this many is used from one file to the next


class BeginBounds:
    def __init__(
        self,
        intakes: Mapping[TopicPartition, Intake],
        on_low: Callable[[], object],
        topic_ids: Mapping[TopicPartition, UUID | None] | None = None,
    ) -> None:
        """`on_low` is called when half of an allowance is used up."""
        self._intakes = intakes
        self._topic_ids = topic_ids or {}
        self._ahead = dict.fromkeys(intakes, MIN_AHEAD)
        self._before = {partition: intake.next_offset for partition, intake in intakes.items()}  # at the last file
        self._on_low = on_low
        self.on_allowed: Callable[[], object] = lambda: None
        for partition, intake in intakes.items():
            intake.on_low = lambda partition=partition: self._grow(partition)  # type: ignore[misc]
            if intake.ledger.position >= 0:
                intake.bound = intake.ledger.position  # nothing begins until a file allows it
        self._grown_at = {partition: intake.bound for partition, intake in intakes.items()}  # once per bound

    def _grow(self, partition: TopicPartition) -> None:
        intake = self._intakes[partition]
        intake.low = inf
        if intake.bound != self._grown_at[partition]:  # an intake that waits at its bound calls many times
            self._grown_at[partition] = intake.bound
            self._ahead[partition] = min(_MAX_AHEAD, 2 * self._ahead[partition])
        self._on_low()

    def open_ranges(self) -> list[OpenRange]:
        """The offsets that are not settled, and may begin once these ranges are written."""
        ranges = []
        for partition, intake in self._intakes.items():
            point = intake.ledger.commit_point()
            ranges.append(OpenRange(partition, max(0, point.offset), self._bound(partition, intake), point.runs))
        return ranges

    def logs(self) -> list[ReadLog]:
        """The logs that were read, as far as they are known, and how far."""
        logs = []
        for partition, intake in self._intakes.items():
            epoch = intake.ledger.end_epoch
            if epoch != NO_EPOCH:
                mark = LogIdentity(epoch, self._topic_ids.get(partition))
                logs.append(ReadLog(partition, intake.ledger.position, mark))
        return logs

    def _bound(self, partition: TopicPartition, intake: Intake) -> int:
        if intake.ledger.position < 0:
            return UNBOUNDED  # the first offset is unknown before the first block
        used, self._before[partition] = intake.next_offset - self._before[partition], intake.next_offset
        if used * _USED < self._ahead[partition]:
            self._ahead[partition] = max(MIN_AHEAD, self._ahead[partition] // 2)
        bound = int(max(intake.next_offset + self._ahead[partition], 0 if intake.bound == inf else intake.bound))
        if intake.bound == inf:
            intake.bound = bound
        return bound

    def allow(self, ranges: Iterable[OpenRange]) -> None:
        """Move the bounds: the file that lists these ranges is written."""
        for one in ranges:
            intake = self._intakes[one.partition]
            if one.end != UNBOUNDED and intake.bound <= one.end:
                intake.bound = one.end
                intake.low = one.end - self._ahead[one.partition] / 2
        self.on_allowed()

    def end(self) -> None:
        for intake in self._intakes.values():
            intake.on_low = lambda: None
