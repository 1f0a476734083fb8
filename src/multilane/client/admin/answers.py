"""What an admin client answers: frozen values, and how they are read from responses.

Thread: none (pure).

Responses are kio entities of whatever version was spoken; a field that an old version lacks becomes its empty value.
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
    """`controller` is where administrative writes go; under KRaft that is any broker, which passes them on."""

    id: str | None
    brokers: tuple[Node, ...]
    controller: NodeId | None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """`leader` None: there is none at present."""

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
    """`type` is classic, consumer, share or streams; `type` and `state` are empty when the broker is too old to say."""

    id: str
    type: str
    state: str
    protocol_type: str
    coordinator: NodeId


@dataclass(frozen=True, slots=True)
class GroupMember:
    """`assignment` is None for a classic member of something that is not a consumer: only it can read its bytes."""

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
    """`epoch` is -1 for classic groups; `assignor` is the protocol that members agreed on, or the broker's assignor."""

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


def _partition(told: Any) -> PartitionDescription:
    leader = int(told.leader_id)
    return PartitionDescription(
        int(told.partition_index),
        None if leader == _NO_LEADER else NodeId(leader),
        LeaderEpoch(int(told.leader_epoch)),
        _nodes(told.replica_nodes),
        _nodes(told.isr_nodes),
        _nodes(told.offline_replicas),
    )


def _nodes(told: Any) -> tuple[NodeId, ...]:
    return tuple(NodeId(int(n)) for n in told)


def topic_errors(response: Any, *, named: bool) -> BrokerError | None:
    """The first error of a topic. One that vanished is worth a word only to who asked for it by name."""
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
    told = response
    if hasattr(response, "coordinators"):
        told = next((c for c in response.coordinators if str(c.key) == group), None)
        if told is None:
            return -1, NodeId(-1)
    return int(told.error_code), NodeId(int(told.node_id))


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


def classic_group(told: Any, node: NodeId) -> GroupDescription:
    consumers = str(told.protocol_type) == _CONSUMER_PROTOCOL
    return GroupDescription(
        id=str(told.group_id),
        type="classic",
        state=str(told.group_state),
        protocol_type=str(told.protocol_type),
        assignor=str(told.protocol_data),
        coordinator=node,
        members=tuple(
            GroupMember(
                str(m.member_id),
                getattr(m, "group_instance_id", None),
                str(m.client_id),
                str(m.client_host),
                read_assignment(bytes(m.member_assignment)) if consumers else None,
            )
            for m in told.members
        ),
    )


def consumer_group(told: Any, node: NodeId) -> GroupDescription:
    """A group of the protocol of KIP-848."""
    return GroupDescription(
        id=str(told.group_id),
        type="consumer",
        state=str(told.group_state),
        protocol_type=_CONSUMER_PROTOCOL,
        assignor=str(told.assignor_name),
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
            for m in told.members
        ),
        epoch=int(told.group_epoch),
        assignment_epoch=int(told.assignment_epoch),
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


def committed_in(told: Any, names: Mapping[UUID, str]) -> dict[TopicPartition, CommittedOffset]:
    """The offsets of one group; `names` translates topic ids. Topics that are gone are left out."""
    found = {}
    for topic in told.topics:
        name = str(topic.name) if hasattr(topic, "name") else names.get(topic.topic_id)
        for p in topic.partitions:
            if name is not None and int(p.committed_offset) >= 0:
                found[TopicPartition(name, int(p.partition_index))] = CommittedOffset(
                    Offset(int(p.committed_offset)), LeaderEpoch(int(p.committed_leader_epoch)), str(p.metadata or "")
                )
    return found


def offset_errors(told: Any, group: str) -> BrokerError | None:
    """What a group's part says went wrong, as a whole or for a partition."""
    codes = [int(told.error_code), *(int(p.error_code) for t in told.topics for p in t.partitions)]
    return next((broker_error(code, f"OffsetFetch of group {group}") for code in codes if code), None)
