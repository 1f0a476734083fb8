"""The sights of one group, as many as rates and standstills need.

Thread: none (pure); one owner.

Commits come once a second or so: two sights a second apart may have two of them between them, or none. So rates are
measured over some seconds, as soon as there are as many.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from multilane.group.comparison import GroupReport, Standstill, compared, lag_of, stood
from multilane.group.snapshot import GroupSnapshot
from multilane.types import TopicPartition

WINDOW: Final = 10.0  # seconds over which rates are measured


class SnapshotHistory:
    def __init__(self, stalled_after: float, window: float = WINDOW) -> None:
        """A partition is stalled when it had something to do, and settled nothing, for `stalled_after` seconds."""
        self._stalled_after = stalled_after
        self._window = window
        self._snapshots: deque[GroupSnapshot] = deque()  # the oldest first
        self._standing: dict[TopicPartition, Standstill] = {}

    def add(self, snapshot: GroupSnapshot) -> GroupReport:
        while len(self._snapshots) > 1 and self._snapshots[1].at <= snapshot.at - self._window:
            self._snapshots.popleft()
        earlier = tuple(self._snapshots)
        self._snapshots.append(snapshot)
        found = {}
        for partition, place in snapshot.partitions.items():
            _, left = lag_of(place, snapshot.subject.is_from_beginning)
            standing = stood(self._standing.get(partition), place, left, snapshot.at)
            if standing is not None:
                found[partition] = standing
        self._standing = found
        return compared(earlier, snapshot, found, self._stalled_after)
