"""The contents of JoinGroup and SyncGroup as plain values.

Thread: none (pure).

Answers are checked here: a protocol that we did not offer is refused, and values that no coordinator sends (a
generation below zero, no member id) raise FrameError. A lower generation is valid: a new coordinator knows only those
whose assignment was stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from multilane.client.group.classic.verdicts import inconsistent
from multilane.errors import FrameError, GroupError, printable
from multilane.types import TopicPartition
from multilane.wire.compose_classic import CONSUMER_PROTOCOL_TYPE
from multilane.wire.compose_groups import read_assignment
from multilane.wire.subscription import NO_GENERATION, MemberSubscription, write_subscription

if TYPE_CHECKING:
    from multilane.client.group.assignors import Assignor

SHOWN: Final = 100  # characters of a broker's text in our logs


@dataclass(frozen=True, slots=True)
class JoinClaim:
    """What a joining member sends. `last` is its last assignment, even if released since."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition]
    generation: int
    last: frozenset[TopicPartition]
    last_generation: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ListedMember:
    """A member as listed for the leader; `metadata` is the member's own."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    member_id: str
    generation: int
    protocol: str
    leader: str
    skip_assignment: bool
    members: tuple[ListedMember, ...]

    @property
    def leads(self) -> bool:
        return self.leader == self.member_id


def protocols(assignors: Iterable[Assignor], claim: JoinClaim) -> tuple[tuple[str, bytes], ...]:
    """The subscription once per assignor, with that assignor's user data. Raises GroupError if an assignor fails."""
    return tuple((assignor.name, _subscription(assignor, claim)) for assignor in assignors)


def _subscription(assignor: Assignor, claim: JoinClaim) -> bytes:
    try:
        return write_subscription(
            MemberSubscription(
                topics=tuple(sorted(claim.topics)),
                user_data=assignor.user_data(tuple(sorted(claim.last)), claim.last_generation),
                owned=tuple(sorted(claim.owned)),
                generation=claim.generation,
                rack=claim.rack,
            )
        )
    except Exception as error:  # an assignor may be the application's own
        raise GroupError(f"assignor {assignor.name} failed: {error!r}") from error


def read_join(response: Any, offered: Sequence[str], what: str) -> Joined:
    """A JoinGroup answer without an error code."""
    _check_type(response, what)
    name = response.protocol_name
    if name not in offered:
        text = f"the group chose assignor {printable(str(name), SHOWN)!r}, but {', '.join(offered)} were offered"
        raise inconsistent(what, text)
    joined = Joined(
        member_id=str(response.member_id),
        generation=int(response.generation_id),
        protocol=str(name),
        leader=str(response.leader),
        skip_assignment=bool(getattr(response, "skip_assignment", False)),
        members=tuple(_listed(member) for member in response.members),
    )
    if joined.generation <= NO_GENERATION or not joined.member_id:
        raise FrameError(f"{what} returned generation {joined.generation} without an error")
    if (
        joined.leads
        and not joined.skip_assignment
        and all(member.member_id != joined.member_id for member in joined.members)
    ):
        raise FrameError(f"{what} made this member leader of {len(joined.members)} members without listing it")
    return joined


def read_sync(response: Any, protocol: str, what: str) -> frozenset[TopicPartition]:
    """The assignment in a SyncGroup answer without an error code."""
    _check_type(response, what)
    name = getattr(response, "protocol_name", None)
    if name is not None and name != protocol:
        raise inconsistent(what, f"joined with assignor {protocol}, synchronised with {printable(str(name), SHOWN)!r}")
    return frozenset(read_assignment(bytes(response.assignment)))


def _listed(member: Any) -> ListedMember:
    instance = getattr(member, "group_instance_id", None)
    return ListedMember(str(member.member_id), None if instance is None else str(instance), bytes(member.metadata))


def _check_type(response: Any, what: str) -> None:
    found = getattr(response, "protocol_type", None)
    if found is not None and found != CONSUMER_PROTOCOL_TYPE:
        raise inconsistent(what, f"the protocol type of the group is {printable(str(found), SHOWN)!r}")
