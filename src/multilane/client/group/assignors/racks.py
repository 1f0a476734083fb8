"""Racks: when it is worth matching those of members with those of replicas, and whether two match.

Thread: none (pure).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from multilane.client.group.assignors.values import AssignorMember, TopicShape
from multilane.types import TopicPartition


def worth_matching(member_racks: Collection[str], partition_racks: Iterable[frozenset[str]]) -> bool:
    """Not when a member finds every partition in its rack, or none."""
    each = set(partition_racks)
    everywhere = frozenset[str]().union(*each)
    return not everywhere.isdisjoint(member_racks) and each != {everywhere}


class RackMap:
    """Where the members of a group and the replicas of its partitions are. Where matching is not worth it, it knows
    of no racks, and everything fits everyone."""

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
        """Whether the member has a replica in its rack, or has no rack."""
        rack = self._member.get(member)
        return rack is None or rack in self._partition[partition]

    def readers(self, partition: TopicPartition) -> int:
        """How many members have a replica of this partition in their rack."""
        return sum(self._readers[rack] for rack in self._partition.get(partition, ()))

    def next_near(self, partition: TopicPartition, members: Sequence[str], turn: int) -> int | None:
        """The index of the first member, from `turn` on and around, that is in a rack of the partition. A member that
        has no rack is near nothing."""
        racks = self._partition[partition]
        for step in range(len(members)):
            index = (turn + step) % len(members)
            if self._member.get(members[index]) in racks:
                return index
        return None
