"""The sights of one group, as many as rates and standstills need.

Thread: none (pure); one owner.

Commits come once a second or so: two sights a second apart may have two of them between them, or none. So rates are
measured over some seconds, as soon as there are as many.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from multilane.group.movement import Report, Standing, compared, lag_of, stood
from multilane.group.sight import Sight
from multilane.types import TopicPartition

WINDOW: Final = 10.0  # seconds over which rates are measured


class Trail:
    def __init__(self, stalled_after: float, window: float = WINDOW) -> None:
        """A partition is stalled when it had something to do, and settled nothing, for `stalled_after` seconds."""
        self._stalled_after = stalled_after
        self._window = window
        self._sights: deque[Sight] = deque()  # the oldest first
        self._standing: dict[TopicPartition, Standing] = {}

    def add(self, sight: Sight) -> Report:
        while len(self._sights) > 1 and self._sights[1].at <= sight.at - self._window:
            self._sights.popleft()
        earlier = tuple(self._sights)
        self._sights.append(sight)
        found = {}
        for partition, place in sight.partitions.items():
            _, left = lag_of(place, sight.subject.is_from_beginning)
            standing = stood(self._standing.get(partition), place, left, sight.at)
            if standing is not None:
                found[partition] = standing
        self._standing = found
        return compared(earlier, sight, found, self._stalled_after)
