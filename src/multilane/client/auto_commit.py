"""Decides when offsets are committed automatically, and which of them changed since the last commit.

Thread: application; owned by the subscriber. Pure: `now` is a parameter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multilane.client.group.commit_queue import Offsets
    from multilane.types import OffsetAndMetadata, TopicPartition


class AutoCommit:
    def __init__(self, interval: float, now: float) -> None:
        self._interval = interval
        self._next = now + interval
        self._committed: Offsets = {}

    def is_due(self, now: float) -> bool:
        if now < self._next:
            return False
        self._next = now + self._interval
        return True

    def changed(self, consumed: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        """Consumed offsets that are not committed yet. They count as committed from now on."""
        before, self._committed = self._committed, consumed
        return {p: offset for p, offset in consumed.items() if before.get(p) != offset}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """The group's offsets of these partitions may have changed: another member owned them, or the application
        committed."""
        gone = frozenset(partitions)
        self._committed = {p: offset for p, offset in self._committed.items() if p not in gone}

    def failed(self) -> None:
        """The next commit covers all offsets again."""
        self._committed = {}
