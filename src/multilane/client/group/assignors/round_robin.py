"""The round-robin assignor: all partitions in a row, one to each member in turn.

Thread: none (pure).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from multilane.client.group.assignors.values import AssignorMember, GroupAssignment, TopicShapes, seniority, wanted
from multilane.types import TopicPartition


class RoundRobinAssignor:
    name: Final = "roundrobin"
    cooperative: Final = False

    def assign(self, members: Sequence[AssignorMember], topics: TopicShapes) -> GroupAssignment:
        assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        turns = deque((member.member_id, frozenset(member.topics)) for member in sorted(members, key=seniority))
        for topic, shape in wanted(members, topics).items():
            for number in range(shape.partitions):
                # At least one member subscribes to a wanted topic. Members that do not are skipped.
                while topic not in turns[0][1]:
                    turns.rotate(-1)
                assigned[turns[0][0]].append(TopicPartition(topic, number))
                turns.rotate(-1)
        return {member: tuple(partitions) for member, partitions in assigned.items()}

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        del owned, generation
        return b""
