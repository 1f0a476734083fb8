"""The sticky assignor: as even as possible, and members keep as many partitions as that allows.

Thread: none (pure).

Its groups rebalance eagerly: members join without partitions, and their user data lists the former ones.

In three cases it differs from Java's, which fails or assigns partitions to members that do not subscribe to them: a
member claims a partition number that its topic does not have; the member that Java lists first subscribes to nothing
and all others to the same topics; a member had a partition in an earlier generation and no longer wants its topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from multilane.client.group.assignors.claims import Claims, Ownership, ReadOwnership, resolve
from multilane.client.group.assignors.racks import RackMap
from multilane.client.group.assignors.sticky_even import assign_evenly
from multilane.client.group.assignors.sticky_uneven import assign_unevenly
from multilane.client.group.assignors.user_data import read_ownership, write_ownership
from multilane.client.group.assignors.values import AssignorMember, GroupAssignment, TopicShapes, wanted
from multilane.types import TopicPartition
from multilane.wire.subscription import NO_GENERATION


@dataclass(frozen=True, slots=True)
class StickyAssignment:
    """The final assignment, and the claims that it is based on."""

    assigned: GroupAssignment
    claims: Claims
    even: bool


def assign_sticky(members: Sequence[AssignorMember], topics: TopicShapes, read: ReadOwnership) -> StickyAssignment:
    existing = wanted(members, topics)
    claims = resolve(members, read, existing)
    racks = RackMap(members, existing)
    even = len({frozenset(member.topics) for member in members}) == 1
    assigned = assign_evenly(claims, existing, racks) if even else assign_unevenly(members, claims, existing, racks)
    return StickyAssignment({member: tuple(partitions) for member, partitions in assigned.items()}, claims, even)


class StickyAssignor:
    name: Final = "sticky"
    cooperative: Final = False

    def assign(self, members: Sequence[AssignorMember], topics: TopicShapes) -> GroupAssignment:
        return assign_sticky(members, topics, _ownership).assigned

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        never_assigned = not owned and generation == NO_GENERATION
        return b"" if never_assigned else write_ownership(owned, generation)


def _ownership(member: AssignorMember) -> Ownership:
    return read_ownership(member.user_data)
