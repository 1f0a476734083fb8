"""What a member owns, what it is to own, and the next step from the one to the other.

Thread: none (pure); belongs to the membership that made it, on the network thread.

A partition is known here by its topic's id: a topic that was deleted and made again has another one, so its partitions
are given up and begun with although they are named as before. The name that the application was given stays with what
is owned, also when the picture of the cluster no longer has it.

Owns no state of the protocol and tells nobody: the membership asks for the next step and says when it is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from multilane.errors import WireError
from multilane.logs import logger
from multilane.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multilane.client.cluster import Cluster

log = logger(__name__)

MOST_PARTITIONS: Final = 1_000_000

Numbered = tuple[UUID, int]
"""A partition by the id of its topic."""

Target = Mapping[UUID, frozenset[int]]


def read_target(assignment: Any) -> Target:
    """What a heartbeat's answer assigns. What cannot be a partition is left out, aloud; too much of it is refused."""
    found: dict[UUID, frozenset[int]] = {}
    count = 0
    for told in assignment.topic_partitions:
        count += len(told.partitions)
        if count > MOST_PARTITIONS:
            raise WireError(f"the coordinator assigns more than {MOST_PARTITIONS} partitions to one member")
        numbers = frozenset(int(p) for p in told.partitions if int(p) >= 0)
        if told.topic_id is None or len(numbers) < len(told.partitions):
            log.warning("an assignment has partitions of no topic, negative or repeated ones; they are left out")
        if told.topic_id is not None and numbers:
            found[told.topic_id] = found.get(told.topic_id, frozenset()) | numbers
    return found


@dataclass(frozen=True, slots=True)
class ReconcilePlan:
    """The difference between what is owned and what is assigned. `unknown` are the ids of topics that the picture of
    the cluster does not have yet, or not with the partitions assigned."""

    revoked: frozenset[Numbered]
    added: Mapping[Numbered, TopicPartition]
    unknown: frozenset[UUID]


class Reconciliation:
    def __init__(self) -> None:
        self.target: Target | None = None  # None: nothing was assigned since we joined
        self._owned: dict[Numbered, TopicPartition] = {}
        self._names: frozenset[TopicPartition] | None = frozenset()

    @property
    def owned(self) -> frozenset[TopicPartition]:
        if self._names is None:
            self._names = frozenset(self._owned.values())
        return self._names

    def owned_by_id(self) -> dict[UUID, list[int]]:
        found: dict[UUID, list[int]] = {}
        for topic_id, number in self._owned:
            found.setdefault(topic_id, []).append(number)
        return found

    def plan(self, cluster: Cluster) -> ReconcilePlan:
        if self.target is None:
            return ReconcilePlan(frozenset(), {}, frozenset())
        wanted = {(topic_id, n) for topic_id, numbers in self.target.items() for n in numbers}
        added: dict[Numbered, TopicPartition] = {}
        unknown: set[UUID] = set()
        for topic_id, number in wanted - self._owned.keys():
            topic = cluster.topic_named(topic_id)
            name = None if topic is None or number not in topic.partitions else TopicPartition(topic.name, number)
            if name is None or name in self.owned:  # owned: by the topic that had this name before, until it is revoked
                unknown.add(topic_id)
            else:
                added[topic_id, number] = name
        return ReconcilePlan(frozenset(self._owned.keys() - wanted), added, frozenset(unknown))

    def names_of(self, partitions: Iterable[Numbered]) -> frozenset[TopicPartition]:
        return frozenset(self._owned[p] for p in partitions)

    def take(self, added: Mapping[Numbered, TopicPartition]) -> None:
        self._owned.update(added)
        self._names = None

    def give_up(self, partitions: Iterable[Numbered]) -> None:
        for partition in partitions:
            self._owned.pop(partition, None)
        self._names = None

    def clear(self) -> None:
        """Nothing is owned and nothing is assigned: as before joining."""
        self.target = None
        self._owned.clear()
        self._names = frozenset()
