"""What a group member had settled in its partitions when it ended, for the member that takes its place here.

Thread: loop; one owner at a time.

A member that fails may not be able to commit. What its processors settled is still true, so the next member of this
process goes on there, if the group's commit is one that this process made or began with: then nobody else was there in
between, and no tool has moved the group. Owns the starts. Never commits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from multilane.lanes.assignment import Start
from multilane.types import OffsetAndMetadata, TopicPartition

_MOST_SENT: Final = 16  # commits of a partition that are not known to be stored; of more, the oldest are forgotten

_Place = tuple[int, str]


class _Kept(NamedTuple):
    start: Start
    commits: frozenset[_Place | None]  # of the group, while this process held the partition


class KeptStarts:
    def __init__(self) -> None:
        self._kept: dict[TopicPartition, _Kept] = {}
        self._sent: dict[TopicPartition, deque[_Place | None]] = {}

    def note_sent(self, commits: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These commits are sent: whether they are stored may never be known, of none of them."""
        for partition, commit in commits.items():
            self._sent.setdefault(partition, deque(maxlen=_MOST_SENT)).append(_commit(commit))

    def note_stored(self, commits: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These are stored, so no commit before them is the group's any more."""
        for partition, commit in commits.items():
            sent, stored = self._sent.get(partition, deque()), _commit(commit)
            while stored in sent:
                sent.popleft()

    def keep(self, partition: TopicPartition, start: Start, committed: OffsetAndMetadata | None) -> None:
        """A processor of this partition has ended here. `committed` is the last commit that is known."""
        commits = frozenset((_commit(committed), *self._sent.pop(partition, ())))
        if start.offset >= 0:
            self._kept[partition] = _Kept(start, commits)

    def forget(self, partition: TopicPartition) -> None:
        self._kept.pop(partition, None)
        self._sent.pop(partition, None)

    def take(self, partition: TopicPartition, committed: OffsetAndMetadata | None) -> Start | None:
        """Where to go on, if the group's commit still is what it was."""
        kept = self._kept.pop(partition, None)
        self._sent.pop(partition, None)
        return None if kept is None or _commit(committed) not in kept.commits else kept.start

    def change(self, changed: Callable[[Start], Start]) -> None:
        self._kept = {p: kept._replace(start=changed(kept.start)) for p, kept in self._kept.items()}


def _commit(committed: OffsetAndMetadata | None) -> _Place | None:
    return None if committed is None else (int(committed.offset), committed.metadata)
