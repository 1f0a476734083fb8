"""The cooperative sticky assignor: the sticky one for members that keep their partitions while they rebalance.

Thread: none (pure).

A partition that changes its owner is first assigned to no member: its old owner sees that it is missing, revokes it and
rejoins, and the next rebalance assigns it to the new owner. Two members never own it at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from multilane.client.group.assignors.claims import Claims, Ownership
from multilane.client.group.assignors.sticky import assign_sticky
from multilane.client.group.assignors.user_data import read_generation, write_generation
from multilane.client.group.assignors.values import AssignorMember, GroupAssignment, TopicShapes
from multilane.types import TopicPartition

_IsClaimed = Callable[[TopicPartition, str], bool]  # whether another member must release the partition first


class CooperativeStickyAssignor:
    name: Final = "cooperative-sticky"
    cooperative: Final = True

    def assign(self, members: Sequence[AssignorMember], topics: TopicShapes) -> GroupAssignment:
        assignment = assign_sticky(members, topics, _ownership)
        is_claimed = _by_resolved_claims(assignment.claims) if assignment.even else _by_every_claim(members)
        return {
            member: tuple(partition for partition in partitions if not is_claimed(partition, member))
            for member, partitions in assignment.assigned.items()
        }

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        del owned  # the subscription itself contains them
        return write_generation(generation)


def _ownership(member: AssignorMember) -> Ownership:
    # Subscriptions older than version 2 have no field for the generation.
    return Ownership(member.owned, member.generation if member.generation >= 0 else read_generation(member.user_data))


def _by_resolved_claims(claims: Claims) -> _IsClaimed:
    """As strict about disputed partitions as Java: not even a member that claims one gets it at once."""

    def is_claimed(partition: TopicPartition, member: str) -> bool:
        return partition in claims.disputed or claims.owner.get(partition, member) != member

    return is_claimed


def _by_every_claim(members: Sequence[AssignorMember]) -> _IsClaimed:
    """As in Java, all claims count, even older ones: a member that claims a partition gets it, others wait."""
    owned = {member.member_id: frozenset(member.owned) for member in members}
    claimants = Counter(partition for partitions in owned.values() for partition in partitions)

    def is_claimed(partition: TopicPartition, member: str) -> bool:
        return claimants[partition] > 0 and partition not in owned[member]

    return is_claimed
