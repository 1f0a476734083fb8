"""An immutable snapshot of the cluster: brokers, topics and leaders.

Thread: none (pure values); any thread may read one.

Two sources update it: Metadata responses (`merged`) and the leader hints in error responses (`with_leader`, KIP-951).
An older leader epoch never overwrites a newer one of the same topic id. Brokers lag behind each other, and an older
epoch would send fetches to a former leader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from multilane.types import NO_EPOCH, LeaderEpoch, Node, NodeId, TopicPartition


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leader of a partition and its epoch. `node` is None while there is no leader."""

    node: NodeId | None
    epoch: LeaderEpoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: UUID | None
    partitions: Mapping[int, Leadership]
    is_internal: bool = False
    replicas: Mapping[int, tuple[NodeId, ...]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Cluster:
    id: str | None = None
    nodes: Mapping[NodeId, Node] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    _by_id: Mapping[UUID, Topic] | None = field(default=None, init=False, repr=False, compare=False)

    def leadership(self, partition: TopicPartition) -> Leadership | None:
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def topic_id(self, topic: str) -> UUID | None:
        found = self.topics.get(topic)
        return None if found is None else found.id

    def topic_named(self, topic_id: UUID) -> Topic | None:
        """The topic with this id, in one lookup."""
        found = self._by_id
        if found is None:
            # Built on first use and kept. Two threads may both build it: the results are equal.
            found = {t.id: t for t in self.topics.values() if t.id is not None}
            object.__setattr__(self, "_by_id", found)
        return found.get(topic_id)

    def racks_of(self, topic: str) -> tuple[frozenset[str], ...]:
        """The racks of each partition's replicas, from partition 0 on; empty if no broker has a rack."""
        found = self.topics.get(topic)
        racks = {n.id: n.rack for n in self.nodes.values() if n.rack}
        if found is None or not racks:
            return ()
        replicas = [found.replicas.get(number, ()) for number in range(len(found.partitions))]
        return tuple(frozenset(racks[node] for node in nodes if node in racks) for nodes in replicas)

    def without(self, *topics: str) -> Cluster:
        gone = frozenset(topics)
        return replace(self, topics=MappingProxyType({n: t for n, t in self.topics.items() if n not in gone}))

    def only(self, topics: Collection[str]) -> Cluster:
        return replace(self, topics=MappingProxyType({n: self.topics[n] for n in topics if n in self.topics}))

    def with_leader(self, partition: TopicPartition, leader: Leadership, endpoints: Iterable[Node] = ()) -> Cluster:
        """This cluster after a hint, or the same object if the hint is not newer."""
        topic = self.topics.get(partition.topic)
        known = None if topic is None else topic.partitions.get(partition.partition)
        if topic is None or known is None or leader.epoch <= known.epoch:
            return self
        nodes = {**self.nodes, **{n.id: n for n in endpoints}}
        if leader.node not in nodes:
            return self
        changed = replace(topic, partitions=MappingProxyType({**topic.partitions, partition.partition: leader}))
        return replace(
            self,
            nodes=MappingProxyType(nodes),
            topics=MappingProxyType({**self.topics, partition.topic: changed}),
        )

    def merged(self, response: Any, asked: Collection[str] | None, ids: Collection[UUID] = ()) -> Cluster:
        """This cluster after a Metadata response for the topics `asked` (None: all topics) or for those with `ids`. A
        topic that was requested by id and is not in the response no longer exists, whatever its name was."""
        nodes = {
            NodeId(int(b.node_id)): Node(NodeId(int(b.node_id)), str(b.host), int(b.port), b.rack)
            for b in response.brokers
        }
        answered = {str(t.name): t for t in response.topics if t.name is not None}
        kept: dict[str, Topic] = {}
        if asked is not None:
            left, gone = frozenset(asked), frozenset(ids)
            kept = {n: t for n, t in self.topics.items() if n not in left and t.id not in gone}
        fresh = {
            name: _newer(self.topics.get(name), _topic(name, topic))
            for name, topic in answered.items()
            if not _gone(topic)
        }
        return Cluster(
            id=getattr(response, "cluster_id", None) or self.id,
            nodes=MappingProxyType(nodes or dict(self.nodes)),
            topics=MappingProxyType({**kept, **fresh}),
        )


def _gone(topic: Any) -> bool:
    return int(topic.error_code) != 0 and not topic.partitions


def _topic(name: str, topic: Any) -> Topic:
    partitions = {
        int(p.partition_index): Leadership(
            NodeId(int(p.leader_id)) if int(p.leader_id) >= 0 else None,
            LeaderEpoch(int(getattr(p, "leader_epoch", NO_EPOCH))),
        )
        for p in topic.partitions
        if int(p.partition_index) >= 0
    }
    is_internal = bool(getattr(topic, "is_internal", False))
    replicas = {int(p.partition_index): tuple(NodeId(int(n)) for n in p.replica_nodes) for p in topic.partitions}
    return Topic(
        name, getattr(topic, "topic_id", None), MappingProxyType(partitions), is_internal, MappingProxyType(replicas)
    )


def _newer(known: Topic | None, fresh: Topic) -> Topic:
    """`fresh`, but keeps the partitions of the same topic that have a newer epoch in `known`."""
    if known is None or known.id != fresh.id:
        return fresh
    merged = {
        number: known.partitions[number]
        if number in known.partitions and known.partitions[number].epoch > leader.epoch
        else leader
        for number, leader in fresh.partitions.items()
    }
    return replace(fresh, partitions=MappingProxyType(merged))
