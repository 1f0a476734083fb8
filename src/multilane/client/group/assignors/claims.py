"""Former ownership of partitions: resolves the members' claims.

Thread: none (pure).

Claims may conflict: a member that was away and missed a generation still lists partitions that another member got
since. The claim of the later generation wins; of two claims in the same generation neither does. Claims to partitions
that do not exist (any more) are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from multilane.client.group.assignors.hash_order import in_hash_order
from multilane.client.group.assignors.values import AssignorMember, TopicShape
from multilane.types import TopicPartition
from multilane.wire.subscription import NO_GENERATION


@dataclass(frozen=True, slots=True)
class Ownership:
    """The partitions that a member claims, and the generation of its assignment."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


ReadOwnership: TypeAlias = Callable[[AssignorMember], Ownership]


@dataclass(frozen=True, slots=True)
class Claims:
    """`owned` lists members as Java does (see hash_order) and each one's partitions in its own order."""

    owned: dict[str, dict[TopicPartition, None]] = field(default_factory=dict)
    owner: dict[TopicPartition, str] = field(default_factory=dict)
    disputed: set[TopicPartition] = field(default_factory=set)
    former: dict[TopicPartition, str] = field(default_factory=dict)  # the last owner in an earlier generation


def resolve(members: Sequence[AssignorMember], read: ReadOwnership, topics: Mapping[str, TopicShape]) -> Claims:
    listed = in_hash_order(members)
    ownerships = {member.member_id: read(member) for member in listed}
    generations = {member.member_id: member.generation for member in listed}
    claims = Claims()
    for member, ownership in ownerships.items():
        claims.owned[member] = {}
        for partition in ownership.partitions:
            if _exists(partition, topics):
                _claim(claims, member, partition, later=_later(claims, partition, ownership.generation, generations))
    _find_former(claims, ownerships)
    return claims


def _exists(partition: TopicPartition, topics: Mapping[str, TopicShape]) -> bool:
    return partition.topic in topics and 0 <= partition.partition < topics[partition.topic].partitions


def _later(claims: Claims, partition: TopicPartition, generation: int, generations: Mapping[str, int]) -> int:
    """How many generations a claim is later than that of the present owner.

    Ownership in user data has a generation of its own; the owner's generation is that of its subscription, as in Java.
    """
    other = claims.owner.get(partition)
    return 1 if other is None else generation - max(NO_GENERATION, generations[other])


def _claim(claims: Claims, member: str, partition: TopicPartition, *, later: int) -> None:
    if later < 0:
        return
    other = claims.owner.get(partition)
    if other is not None:
        claims.owned[other].pop(partition, None)
    if later:
        claims.owned[member][partition] = None
    else:
        claims.disputed.add(partition)
    # For a disputed partition too: the next claim is compared with this one.
    claims.owner[partition] = member


def _find_former(claims: Claims, ownerships: Mapping[str, Ownership]) -> None:
    newest = max((ownership.generation for ownership in ownerships.values()), default=NO_GENERATION)
    since: dict[TopicPartition, int] = {}
    for member, ownership in ownerships.items():
        if ownership.generation >= max(newest, NO_GENERATION):
            continue
        for partition in ownership.partitions:
            if partition not in since or ownership.generation > since[partition]:
                since[partition] = ownership.generation
                claims.former[partition] = member
