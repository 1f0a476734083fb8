"""What the leader of a classic group does: works out who reads what, and watches the topics that it depends on.

Thread: none (pure); belongs to a membership.

The leader needs the partition counts of all topics that any member wants, so `topics` are to be kept in the picture of
the cluster. Those that are not in it yet are waited for, briefly and once: a topic that does not exist must not hold
every rebalance up. When a count differs from the one that was divided the group needs a rebalance: at once where there
is more to read, and where there is less only if it stays so, since brokers forget topics for moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from multilane.client.group.assignors import AssignorMember, TopicShape
from multilane.client.net.requests import NEVER
from multilane.errors import FrameError, GroupError, printable
from multilane.logs import logger
from multilane.wire.subscription import MemberSubscription, read_subscription, write_assignment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multilane.client.cluster import Cluster
    from multilane.client.group.assignors import Assignment, Assignor
    from multilane.client.group.classic.joining import ListedMember
    from multilane.client.group.membership import MemberListeners
    from multilane.types import TopicPartition

log = logger(__name__)

TOPIC_PATIENCE: Final = 2.0
GONE_PATIENCE: Final = 5.0
_SHOWN: Final = 100


class Leader:
    def __init__(self, listeners: MemberListeners) -> None:
        self.topics: frozenset[str] = frozenset()  # none: somebody else leads
        self._listeners = listeners
        self._members: tuple[AssignorMember, ...] = ()
        self._deadline = 0.0
        self._divided: dict[str, int] = {}
        self._seen: Cluster | None = None
        self._fewer_since: float | None = None
        self._missed: frozenset[str] = frozenset()  # waited for before, in vain

    def appoint(self, members: Sequence[ListedMember], now: float) -> None:
        self._members = tuple(_described(member) for member in members)
        self.topics = frozenset(topic for member in self._members for topic in member.topics)
        self._deadline = now + TOPIC_PATIENCE
        if self._unknown():
            self._listeners.refresh()

    def retire(self) -> None:
        self.topics, self._members, self._divided = frozenset(), (), {}
        self._fewer_since = None

    def wait(self, now: float) -> float:
        """Seconds until the topics are known or not waited for any longer; 0 when the work can be done."""
        unknown = self._unknown()
        if not unknown - self._missed:
            return 0.0
        if now < self._deadline:
            return self._deadline - now
        shown = ", ".join(printable(topic, _SHOWN) for topic in sorted(unknown)[:5])
        log.warning("the group subscribes to topics that are not there (%s); they are left out until they are", shown)
        self._missed = unknown
        return 0.0

    def divide(self, assignor: Assignor) -> dict[str, bytes]:
        """The assignment of every member. GroupError when the assignor does what none may."""
        counts = self.remember()
        cluster = self._listeners.cluster()
        shapes = {topic: TopicShape(count, cluster.racks_of(topic)) for topic, count in counts.items() if count > 0}
        try:
            found = assignor.assign(self._members, shapes)
            _check(assignor.name, found, [member.member_id for member in self._members])
            if assignor.cooperative:
                found = _withheld(found, self._members)
            return {member.member_id: write_assignment(found.get(member.member_id, ())) for member in self._members}
        except GroupError:
            raise
        except Exception as error:  # an assignor may be the application's own
            raise GroupError(f"assignor {assignor.name} failed: {error!r}") from error

    def remember(self) -> dict[str, int]:
        """Take the counts of now as those that the assignment was made from."""
        cluster = self._listeners.cluster()
        self._divided = _counts(cluster, self.topics)
        self._missed &= self._unknown()
        self._seen, self._fewer_since = cluster, None
        return self._divided

    def why_again(self, now: float) -> str | None:
        """What calls for another rebalance."""
        cluster = self._listeners.cluster()
        if not self._divided or (cluster is self._seen and self._fewer_since is None):
            return None
        self._seen = cluster
        counts = _counts(cluster, self.topics)
        more = [topic for topic, count in counts.items() if count > self._divided[topic]]
        if more:
            return f"topic {printable(more[0], _SHOWN)} has more partitions than before"
        fewer = [topic for topic, count in counts.items() if count < self._divided[topic]]
        if not fewer:
            self._fewer_since = None
            return None
        self._fewer_since = now if self._fewer_since is None else self._fewer_since
        if now < self._fewer_since + GONE_PATIENCE:
            return None
        return f"topic {printable(fewer[0], _SHOWN)} is gone or has fewer partitions than before"

    def look_again(self, now: float) -> float:
        return NEVER if self._fewer_since is None else max(0.0, self._fewer_since + GONE_PATIENCE - now)

    def _unknown(self) -> frozenset[str]:
        known = self._listeners.cluster().topics
        return frozenset(topic for topic in self.topics if topic not in known)


def _counts(cluster: Cluster, topics: Iterable[str]) -> dict[str, int]:
    known = cluster.topics
    return {topic: len(known[topic].partitions) if topic in known else 0 for topic in sorted(topics)}


def _described(member: ListedMember) -> AssignorMember:
    try:
        wanted = read_subscription(member.metadata)
    except FrameError as error:
        # One broken member must not keep the others from their partitions.
        log.warning("member %s is given nothing: %s", printable(member.member_id, _SHOWN), error)
        wanted = MemberSubscription(())
    return AssignorMember(
        member_id=member.member_id,
        topics=wanted.topics,
        owned=wanted.owned,
        generation=wanted.generation,
        instance_id=member.instance_id,
        rack=wanted.rack,
        user_data=wanted.user_data or b"",
    )


def _check(name: str, found: Assignment, members: Sequence[str]) -> None:
    given: dict[TopicPartition, str] = {}
    for member, partitions in found.items():
        if member not in members:
            raise GroupError(f"assignor {name} assigned to {printable(member, _SHOWN)}, which is no member")
        for partition in partitions:
            other = given.setdefault(partition, member)
            if other != member:
                raise GroupError(f"assignor {name} gave {partition} to two members")


def _withheld(found: Assignment, members: Sequence[AssignorMember]) -> Assignment:
    """Without what somebody else still has: it is free when that member comes back without it. Our own assignors leave
    such partitions out already; of others this is not known."""
    claimants: dict[TopicPartition, set[str]] = {}
    for member in members:
        for partition in member.owned:
            claimants.setdefault(partition, set()).add(member.member_id)
    return {
        member: tuple(p for p in partitions if p not in claimants or member in claimants[p])
        for member, partitions in found.items()
    }
