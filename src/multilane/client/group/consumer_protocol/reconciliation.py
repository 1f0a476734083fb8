"""A member's owned and assigned partitions, and the next step from one to the other.

Thread: none (pure); belongs to the membership that made it, on the network thread.

A partition is identified by its topic's id: a recreated topic has another id, so its partitions are revoked and
assigned again although their names are the same. An owned partition keeps the name that the application was given, even
when the cluster metadata no longer has it.

Owns no state of the protocol and calls nothing: the membership asks for the next step and reports its completion.
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

TargetAssignment = Mapping[UUID, frozenset[int]]


def read_target(assignment: Any) -> TargetAssignment:
    """The assignment in a heartbeat's answer. Invalid partitions are skipped with a warning; too many are refused."""
    found: dict[UUID, frozenset[int]] = {}
    count = 0
    for entry in assignment.topic_partitions:
        count += len(entry.partitions)
        if count > MOST_PARTITIONS:
            raise WireError(f"the coordinator assigns more than {MOST_PARTITIONS} partitions to one member")
        numbers = frozenset(int(p) for p in entry.partitions if int(p) >= 0)
        if entry.topic_id is None or len(numbers) < len(entry.partitions):
            log.warning("ignoring partitions of an assignment that have no topic, or a negative or repeated number")
        if entry.topic_id is not None and numbers:
            found[entry.topic_id] = found.get(entry.topic_id, frozenset()) | numbers
    return found


@dataclass(frozen=True, slots=True)
class ReconcilePlan:
    """The difference between owned and assigned partitions. `unknown` holds the ids of topics that the cluster metadata
    lacks, or whose assigned partitions it lacks."""

    revoked: frozenset[Numbered]
    added: Mapping[Numbered, TopicPartition]
    unknown: frozenset[UUID]


class Reconciliation:
    def __init__(self) -> None:
        self.target: TargetAssignment | None = None  # None: no assignment since joining
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
            if name is None or name in self.owned:  # owned: by the former topic of this name, until it is revoked
                unknown.add(topic_id)
            else:
                added[topic_id, number] = name
        return ReconcilePlan(frozenset(self._owned.keys() - wanted), added, frozenset(unknown))

    def names_of(self, partitions: Iterable[Numbered]) -> frozenset[TopicPartition]:
        return frozenset(self._owned[p] for p in partitions)

    def add(self, added: Mapping[Numbered, TopicPartition]) -> None:
        self._owned.update(added)
        self._names = None

    def remove(self, partitions: Iterable[Numbered]) -> None:
        for partition in partitions:
            self._owned.pop(partition, None)
        self._names = None

    def clear(self) -> None:
        """Nothing is owned and nothing is assigned: as before joining."""
        self.target = None
        self._owned.clear()
        self._names = frozenset()
