"""The result types of the admin client, and how they are read from responses.

Thread: none (pure).

Responses are kio entities of the negotiated version. A field that an old version lacks becomes its empty value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from multilane.errors import BrokerError, broker_error
from multilane.types import LeaderEpoch, Node, NodeId, Offset, TopicPartition
from multilane.wire.compose_groups import read_assignment

_UNKNOWN_TOPIC: Final = 3
_GONE: Final = (_UNKNOWN_TOPIC, 100)  # by name, by id
_NO_LEADER: Final = -1
_CONSUMER_PROTOCOL: Final = "consumer"


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """`controller` receives administrative writes. Under KRaft it is any broker, which forwards them."""

    id: str | None
    brokers: tuple[Node, ...]
    controller: NodeId | None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """`leader` is None while the partition has none."""

    number: int
    leader: NodeId | None
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    offline: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    id: UUID | None
    internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """`type` is classic, consumer, share or streams. `type` and `state` are empty if the broker is too old for them."""

    id: str
    type: str
    state: str
    protocol_type: str
    coordinator: NodeId


@dataclass(frozen=True, slots=True)
class GroupMember:
    """`assignment` is None for a classic member that is not a consumer: only that kind of client can decode it."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...] | None
    target: tuple[TopicPartition, ...] = ()
    epoch: int = -1
    subscription: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`epoch` is -1 for classic groups. `assignor` is the members' common protocol or the broker's assignor."""

    id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: NodeId
    members: tuple[GroupMember, ...]
    epoch: int = -1
    assignment_epoch: int = -1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str


def cluster_in(response: Any) -> ClusterDescription:
    brokers = tuple(
        Node(NodeId(int(b.node_id)), str(b.host), int(b.port), getattr(b, "rack", None)) for b in response.brokers
    )
    controller = int(response.controller_id)
    return ClusterDescription(
        response.cluster_id, tuple(sorted(brokers, key=lambda b: b.id)), NodeId(controller) if controller >= 0 else None
    )


def topics_in(response: Any) -> dict[str, TopicDescription]:
    return {
        str(t.name): TopicDescription(
            str(t.name),
            getattr(t, "topic_id", None),
            bool(t.is_internal),
            tuple(sorted((_partition(p) for p in t.partitions), key=lambda p: p.number)),
        )
        for t in response.topics
        if not int(t.error_code)
    }


def _partition(described: Any) -> PartitionDescription:
    leader = int(described.leader_id)
    return PartitionDescription(
        int(described.partition_index),
        None if leader == _NO_LEADER else NodeId(leader),
        LeaderEpoch(int(described.leader_epoch)),
        _nodes(described.replica_nodes),
        _nodes(described.isr_nodes),
        _nodes(described.offline_replicas),
    )


def _nodes(ids: Any) -> tuple[NodeId, ...]:
    return tuple(NodeId(int(n)) for n in ids)


def topic_errors(response: Any, *, named: bool) -> BrokerError | None:
    """The first topic error. A deleted topic is an error only if it was requested by name."""
    for topic in response.topics:
        code = int(topic.error_code)
        if code in _GONE and not named:
            continue
        if code:
            error = broker_error(code, f"Metadata of topic {topic.name}")
            error.retriable = error.retriable and code != _UNKNOWN_TOPIC
            return error
    return None


def coordinator_in(response: Any, group: str) -> tuple[int, NodeId]:
    """(error code, coordinator)."""
    coordinator = response
    if hasattr(response, "coordinators"):
        coordinator = next((c for c in response.coordinators if str(c.key) == group), None)
        if coordinator is None:
            return -1, NodeId(-1)
    return int(coordinator.error_code), NodeId(int(coordinator.node_id))


def listings_in(response: Any, node: NodeId) -> list[GroupListing]:
    return [
        GroupListing(
            str(g.group_id),
            str(getattr(g, "group_type", "")).lower(),
            str(getattr(g, "group_state", "")),
            str(g.protocol_type),
            node,
        )
        for g in response.groups
    ]


def classic_group(described: Any, node: NodeId) -> GroupDescription:
    consumers = str(described.protocol_type) == _CONSUMER_PROTOCOL
    return GroupDescription(
        id=str(described.group_id),
        type="classic",
        state=str(described.group_state),
        protocol_type=str(described.protocol_type),
        assignor=str(described.protocol_data),
        coordinator=node,
        members=tuple(
            GroupMember(
                str(m.member_id),
                getattr(m, "group_instance_id", None),
                str(m.client_id),
                str(m.client_host),
                read_assignment(bytes(m.member_assignment)) if consumers else None,
            )
            for m in described.members
        ),
    )


def consumer_group(described: Any, node: NodeId) -> GroupDescription:
    """A group of the KIP-848 protocol."""
    return GroupDescription(
        id=str(described.group_id),
        type="consumer",
        state=str(described.group_state),
        protocol_type=_CONSUMER_PROTOCOL,
        assignor=str(described.assignor_name),
        coordinator=node,
        members=tuple(
            GroupMember(
                str(m.member_id),
                m.instance_id,
                str(m.client_id),
                str(m.client_host),
                _partitions(m.assignment),
                _partitions(m.target_assignment),
                int(m.member_epoch),
                tuple(str(name) for name in m.subscribed_topic_names),
            )
            for m in described.members
        ),
        epoch=int(described.group_epoch),
        assignment_epoch=int(described.assignment_epoch),
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(str(t.topic_name), int(p)) for t in assignment.topic_partitions for p in t.partitions)
    )


def offsets_group(response: Any, group: str) -> Any | None:
    """The group's part of an OffsetFetch response; before version 8 the response is that part."""
    if not hasattr(response, "groups"):
        return response
    return next((g for g in response.groups if str(g.group_id) == group), None)


def committed_in(offsets: Any, names: Mapping[UUID, str]) -> dict[TopicPartition, CommittedOffset]:
    """The offsets of one group. `names` maps topic ids to names; offsets of deleted topics are omitted."""
    found = {}
    for topic in offsets.topics:
        name = str(topic.name) if hasattr(topic, "name") else names.get(topic.topic_id)
        for p in topic.partitions:
            if name is not None and int(p.committed_offset) >= 0:
                found[TopicPartition(name, int(p.partition_index))] = CommittedOffset(
                    Offset(int(p.committed_offset)), LeaderEpoch(int(p.committed_leader_epoch)), str(p.metadata or "")
                )
    return found


def offset_errors(offsets: Any, group: str) -> BrokerError | None:
    """The first error of a group's part, for the group or for a partition."""
    codes = [int(offsets.error_code), *(int(p.error_code) for t in offsets.topics for p in t.partitions)]
    return next((broker_error(code, f"OffsetFetch of group {group}") for code in codes if code), None)
