"""What an assignor is given and gives back.

Thread: none (pure values and interfaces).

Owns nothing. An assignor is stateless: what a member was last assigned, and in which generation, is remembered by its
membership, which hands both to `user_data` when it joins again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from multilane.types import TopicPartition

NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """A member as its subscription describes it. What other members wrote is not to be trusted."""

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION  # of the assignment that `owned` comes from
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes = b""


@dataclass(frozen=True, slots=True)
class TopicShape:
    """How many partitions a topic has, and the racks of each one's replicas where they are known."""

    partitions: int
    racks: tuple[frozenset[str], ...] = ()

    def racks_of(self, partition: int) -> frozenset[str]:
        return self.racks[partition] if partition < len(self.racks) else frozenset()


Topics: TypeAlias = Mapping[str, TopicShape]
Assignment: TypeAlias = dict[str, tuple[TopicPartition, ...]]


class Assignor(Protocol):
    """A way to divide partitions among members. Own ones implement this too; they run on the network thread."""

    @property
    def name(self) -> str:
        """What the members of a group agree on: the protocol name in JoinGroup."""
        ...

    @property
    def cooperative(self) -> bool:
        """Whether members may keep their partitions while they rebalance: a partition that changes its owner must
        then be given to nobody until the old owner has joined again without it."""
        ...

    def assign(self, members: Sequence[AssignorMember], topics: Topics) -> Assignment:
        """Every member and its partitions. `members` come as JoinGroup lists them; topics that do not exist are not
        in `topics`."""
        ...

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        """What a member tells the leader besides its subscription. `owned` is its last assignment, also when it has
        been revoked since, and `generation` the one it came with; nothing and NO_GENERATION before the first."""
        ...


def wanted(members: Iterable[AssignorMember], topics: Topics) -> dict[str, TopicShape]:
    """The topics that exist and that someone subscribes to, sorted."""
    named = {topic for member in members for topic in member.topics}
    return {topic: topics[topic] for topic in sorted(named) if topic in topics and topics[topic].partitions > 0}


def utf16(text: str) -> bytes:
    """Sorts as Java sorts strings: by UTF-16 units, which is not the order of code points above the first plane."""
    return text.encode("utf-16-be", "surrogatepass")


def seniority(member: AssignorMember) -> tuple[bool, bytes]:
    """Static members come first, by the name that survives their restarts."""
    if member.instance_id is None:
        return True, utf16(member.member_id)
    return False, utf16(member.instance_id)
