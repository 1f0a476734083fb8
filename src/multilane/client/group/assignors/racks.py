"""Racks: whether it is worth matching members with replicas, and whether two match.

Thread: none (pure).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from multilane.client.group.assignors.values import AssignorMember, TopicShape
from multilane.types import TopicPartition


def worth_matching(member_racks: Collection[str], partition_racks: Iterable[frozenset[str]]) -> bool:
    """False if all partitions have the same racks, or no member shares a rack with a replica."""
    each = set(partition_racks)
    everywhere = frozenset[str]().union(*each)
    return not everywhere.isdisjoint(member_racks) and each != {everywhere}


class RackMap:
    """The racks of members and replicas. If matching is not worth it the map is empty, and every partition fits every
    member."""

    def __init__(self, members: Sequence[AssignorMember], topics: Mapping[str, TopicShape]) -> None:
        self._member = {member.member_id: member.rack for member in members if member.rack}
        self._partition: dict[TopicPartition, frozenset[str]] = {}
        if self._member:
            self._partition = {
                TopicPartition(topic, number): shape.racks_of(number)
                for topic, shape in topics.items()
                for number in range(shape.partitions)
            }
        if not worth_matching(self._member.values(), self._partition.values()):
            self._member, self._partition = {}, {}
        self._readers = Counter(self._member.values())

    def __bool__(self) -> bool:
        return bool(self._member)

    def fits(self, member: str, partition: TopicPartition) -> bool:
        """Whether a replica is in the member's rack, or the member has no rack."""
        rack = self._member.get(member)
        return rack is None or rack in self._partition[partition]

    def readers(self, partition: TopicPartition) -> int:
        """The number of members with a replica of this partition in their rack."""
        return sum(self._readers[rack] for rack in self._partition.get(partition, ()))

    def next_near(self, partition: TopicPartition, members: Sequence[str], turn: int) -> int | None:
        """The index of the first member, from `turn` on and wrapping around, in a rack of the partition. A member
        without a rack is near no partition."""
        racks = self._partition[partition]
        for step in range(len(members)):
            index = (turn + step) % len(members)
            if self._member.get(members[index]) in racks:
                return index
        return None
