"""The moves of partitions between members while an assignment is balanced.

Thread: none (pure).

When a partition is to move from B to A and another of its topic moved from A to B before, that one moves back instead,
and both stay with their original owners.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multilane.client.group.assignors.hash_order import first_in_hash_order
from multilane.types import TopicPartition


@dataclass(slots=True)
class _Moved:
    """The partitions moved along one route; `peak` is the largest number at a time."""

    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    peak: int = 0


class Movements:
    def __init__(self) -> None:
        self._ends: dict[TopicPartition, tuple[str, str]] = {}
        self._routes: dict[tuple[str, str, str], _Moved] = {}

    def instead_of(self, partition: TopicPartition, holder: str, target: str) -> TopicPartition:
        """The partition to move to `target`: one of the same topic that came from there, else the given one."""
        source, _ = self._ends.get(partition, (holder, ""))
        moved = self._routes.get((partition.topic, target, source))
        return partition if moved is None else first_in_hash_order(moved.partitions, moved.peak)

    def record(self, partition: TopicPartition, holder: str, target: str) -> None:
        source = self._take_back(partition) or holder
        if source == target:
            return  # it is back at its original owner
        self._ends[partition] = source, target
        moved = self._routes.setdefault((partition.topic, source, target), _Moved())
        moved.partitions[partition] = None
        moved.peak = max(moved.peak, len(moved.partitions))

    def _take_back(self, partition: TopicPartition) -> str | None:
        """Forgets the move of a partition. Returns its original owner."""
        if partition not in self._ends:
            return None
        source, target = self._ends.pop(partition)
        route = (partition.topic, source, target)
        del self._routes[route].partitions[partition]
        if not self._routes[route].partitions:
            del self._routes[route]
        return source
