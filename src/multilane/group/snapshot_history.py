"""The recent snapshots of one group, as many as rates and standstills need.

Thread: none (pure); one owner.

Commits happen about once a second: between two snapshots a second apart there may be two commits, or none. So rates are
measured over several seconds, once there are enough snapshots.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final

from multilane.group.comparison import GroupReport, Standstill, compared, lag_of, standstill_of
from multilane.group.snapshot import GroupSnapshot
from multilane.types import TopicPartition

WINDOW: Final = 10.0  # seconds over which rates are measured


class SnapshotHistory:
    def __init__(self, stalled_after: float, window: float = WINDOW) -> None:
        """A partition is stalled if it has had lag, and settled nothing, for `stalled_after` seconds."""
        self._stalled_after = stalled_after
        self._window = window
        self._snapshots: deque[GroupSnapshot] = deque()  # the oldest first
        self._standstills: dict[TopicPartition, Standstill] = {}
        self._triggers: dict[str, SnapshotHistory] = {}

    def add(self, snapshot: GroupSnapshot) -> GroupReport:
        while len(self._snapshots) > 1 and self._snapshots[1].at <= snapshot.at - self._window:
            self._snapshots.popleft()
        earlier = tuple(self._snapshots)
        self._snapshots.append(snapshot)
        found = {}
        for partition, current in snapshot.partitions.items():
            _, unsettled = lag_of(current, snapshot.subject.is_from_beginning)
            standstill = standstill_of(self._standstills.get(partition), current, unsettled, snapshot.at)
            if standstill is not None:
                found[partition] = standstill
        self._standstills = found
        report = compared(earlier, snapshot, found, self._stalled_after)
        return replace(report, triggers=self._of_triggers(snapshot)) if snapshot.triggers else report

    def _of_triggers(self, snapshot: GroupSnapshot) -> tuple[GroupReport, ...]:
        for trigger in snapshot.triggers:
            self._triggers.setdefault(trigger.subject.name, SnapshotHistory(self._stalled_after, self._window))
        reports = [self._triggers[trigger.subject.name].add(trigger) for trigger in snapshot.triggers]
        return tuple(sorted(reports, key=lambda report: -report.lag))
