"""The leader's part in a classic group: computes the assignment and watches the topics that it depends on.

Thread: none (pure); belongs to a membership.

The leader needs the partition counts of all topics that any member wants, so `topics` must stay in the cluster
metadata. The leader waits for topics that are missing there, briefly and once: a topic that does not exist must not
delay every rebalance. When a count differs from the assigned one the group needs a rebalance: at once if there are more
partitions, and if there are fewer only after a while, since brokers may lose sight of a topic for a moment.
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
    from multilane.client.group.assignors import Assignor, GroupAssignment
    from multilane.client.group.classic.joining import ListedMember
    from multilane.client.group.membership import MemberListeners
    from multilane.types import TopicPartition

log = logger(__name__)

TOPIC_WAIT: Final = 2.0
GONE_WAIT: Final = 5.0
_SHOWN: Final = 100


class Leader:
    def __init__(self, listeners: MemberListeners) -> None:
        self.topics: frozenset[str] = frozenset()  # empty while another member leads
        self._listeners = listeners
        self._members: tuple[AssignorMember, ...] = ()
        self._deadline = 0.0
        self._divided: dict[str, int] = {}
        self._seen: Cluster | None = None
        self._fewer_since: float | None = None
        self._missed: frozenset[str] = frozenset()  # waited for before without success

    def appoint(self, members: Sequence[ListedMember], now: float) -> None:
        self._members = tuple(_described(member) for member in members)
        self.topics = frozenset(topic for member in self._members for topic in member.topics)
        self._deadline = now + TOPIC_WAIT
        if self._unknown():
            self._listeners.refresh()

    def retire(self) -> None:
        self.topics, self._members, self._divided = frozenset(), (), {}
        self._fewer_since = None

    def wait(self, now: float) -> float:
        """Seconds to wait for missing topics; 0 when the assignment can be computed."""
        unknown = self._unknown()
        if not unknown - self._missed:
            return 0.0
        if now < self._deadline:
            return self._deadline - now
        shown = ", ".join(printable(topic, _SHOWN) for topic in sorted(unknown)[:5])
        log.warning("the group subscribes to topics that do not exist (%s); they are skipped until they do", shown)
        self._missed = unknown
        return 0.0

    def divide(self, assignor: Assignor) -> dict[str, bytes]:
        """The assignment of every member. Raises GroupError if the assignor breaks the rules."""
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
        """Records the present counts as those of the assignment."""
        cluster = self._listeners.cluster()
        self._divided = _counts(cluster, self.topics)
        self._missed &= self._unknown()
        self._seen, self._fewer_since = cluster, None
        return self._divided

    def rejoin_reason(self, now: float) -> str | None:
        """The reason for another rebalance, if there is one."""
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
        if now < self._fewer_since + GONE_WAIT:
            return None
        return f"topic {printable(fewer[0], _SHOWN)} is gone or has fewer partitions than before"

    def next_check(self, now: float) -> float:
        return NEVER if self._fewer_since is None else max(0.0, self._fewer_since + GONE_WAIT - now)

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
        log.warning("member %s gets no partitions: %s", printable(member.member_id, _SHOWN), error)
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


def _check(name: str, found: GroupAssignment, members: Sequence[str]) -> None:
    given: dict[TopicPartition, str] = {}
    for member, partitions in found.items():
        if member not in members:
            raise GroupError(f"assignor {name} assigned to {printable(member, _SHOWN)}, which is not a member")
        for partition in partitions:
            other = given.setdefault(partition, member)
            if other != member:
                raise GroupError(f"assignor {name} assigned {partition} to two members")


def _withheld(found: GroupAssignment, members: Sequence[AssignorMember]) -> GroupAssignment:
    """Withholds partitions that another member still owns: they are free when that member rejoins without them. Our own
    assignors do this already; custom ones may not."""
    claimants: dict[TopicPartition, set[str]] = {}
    for member in members:
        for partition in member.owned:
            claimants.setdefault(partition, set()).add(member.member_id)
    return {
        member: tuple(p for p in partitions if p not in claimants or member in claimants[p])
        for member, partitions in found.items()
    }
