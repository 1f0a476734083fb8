"""The input and output of an assignor.

Thread: none (pure values and interfaces).

Owns nothing. An assignor is stateless: the membership remembers a member's last assignment and its generation, and
passes both to `user_data` when it rejoins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from multilane.types import TopicPartition
from multilane.wire.subscription import NO_GENERATION


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """A member as its subscription describes it. Data from other members is not trusted."""

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION  # of the assignment that `owned` comes from
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes = b""


@dataclass(frozen=True, slots=True)
class TopicShape:
    """The number of partitions of a topic, and the racks of each one's replicas if known."""

    partitions: int
    racks: tuple[frozenset[str], ...] = ()

    def racks_of(self, partition: int) -> frozenset[str]:
        return self.racks[partition] if partition < len(self.racks) else frozenset()


TopicShapes: TypeAlias = Mapping[str, TopicShape]
GroupAssignment: TypeAlias = dict[str, tuple[TopicPartition, ...]]


class Assignor(Protocol):
    """A strategy that divides partitions among members. Custom ones implement this too; they run on the network
    thread."""

    @property
    def name(self) -> str:
        """The protocol name in JoinGroup, on which the members of a group agree."""
        ...

    @property
    def cooperative(self) -> bool:
        """Whether members may keep their partitions while they rebalance: a partition that changes its owner must
        then stay unassigned until the old owner has rejoined without it."""
        ...

    def assign(self, members: Sequence[AssignorMember], topics: TopicShapes) -> GroupAssignment:
        """Returns all members with their partitions. `members` are in the order of JoinGroup; `topics` holds only
        topics that exist."""
        ...

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        """The data that a member sends to the leader besides its subscription. `owned` is its last assignment, even if
        revoked since, and `generation` that of the assignment; empty and NO_GENERATION before the first."""
        ...


def wanted(members: Iterable[AssignorMember], topics: TopicShapes) -> dict[str, TopicShape]:
    """The existing topics with at least one subscriber, sorted."""
    named = {topic for member in members for topic in member.topics}
    return {topic: topics[topic] for topic in sorted(named) if topic in topics and topics[topic].partitions > 0}


def utf16(text: str) -> bytes:
    """Sorts as Java sorts strings: by UTF-16 units, which is not the order of code points above the first plane."""
    return text.encode("utf-16-be", "surrogatepass")


def seniority(member: AssignorMember) -> tuple[bool, bytes]:
    """Static members come first, by their instance ids, which survive restarts."""
    if member.instance_id is None:
        return True, utf16(member.member_id)
    return False, utf16(member.instance_id)
