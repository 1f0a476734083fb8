"""Answers about coordinators and committed offsets as brokers write them, and a place where coordinators are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from multilane.types import NodeId, OffsetAndMetadata, TopicPartition
from multilane.wire.messages import ApiKey
from response_builder import TOPIC_ID, make, response_parts


class KnownCoordinators:
    """Knows one coordinator for every group until it is forgotten."""

    def __init__(self, node: int | None = 1) -> None:
        self.node = None if node is None else NodeId(node)
        self.forgotten: list[tuple[str, NodeId]] = []
        self.asked: list[str] = []

    def of(self, group: str) -> NodeId | None:
        self.asked.append(group)
        return self.node

    def forget(self, group: str, node: NodeId) -> None:
        self.forgotten.append((group, node))
        if self.node == node:
            self.node = None


def coordinator_response(version: int, told: Mapping[str, tuple[int, int]], text: str | None = None) -> Any:
    """Group -> (error code, node); an old version tells of the first group alone."""
    parts = response_parts(ApiKey.FIND_COORDINATOR, version)
    if version >= 4:
        found = tuple(
            make(parts.Coordinator, key=g, node_id=n, host=f"broker-{n}", port=9092, error_code=c, error_message=text)
            for g, (c, n) in told.items()
        )
        return make(parts.FindCoordinatorResponse, coordinators=found)
    code, node = next(iter(told.values()))
    return make(
        parts.FindCoordinatorResponse,
        error_code=code,
        error_message=text,
        node_id=node,
        host=f"broker-{node}",
        port=9092,
    )


def commit_response(version: int, codes: Mapping[TopicPartition, int], ids: Mapping[str, UUID] | None = None) -> Any:
    parts = response_parts(ApiKey.OFFSET_COMMIT, version)
    topics = tuple(
        make(
            parts.OffsetCommitResponseTopic,
            name=tp.topic,
            topic_id=(ids or {}).get(tp.topic, TOPIC_ID),
            partitions=(make(parts.OffsetCommitResponsePartition, partition_index=tp.partition, error_code=code),),
        )
        for tp, code in codes.items()
    )
    return make(parts.OffsetCommitResponse, topics=topics)


def committed_response(
    version: int,
    told: Mapping[TopicPartition, OffsetAndMetadata | int | None],
    *,
    group: str = "g",
    code: int = 0,
    ids: Mapping[str, UUID] | None = None,
) -> Any:
    """Partition -> what is committed, None for nothing, a number for an error code."""
    parts = response_parts(ApiKey.OFFSET_FETCH, version)
    many = "s" if version >= 8 else ""
    topics = tuple(
        make(
            getattr(parts, f"OffsetFetchResponseTopic{many}"),
            name=tp.topic,
            topic_id=(ids or {}).get(tp.topic, TOPIC_ID),
            partitions=(_committed(getattr(parts, f"OffsetFetchResponsePartition{many}"), tp.partition, value),),
        )
        for tp, value in told.items()
    )
    groups: tuple[Any, ...] = ()
    if version >= 8:
        groups = (make(parts.OffsetFetchResponseGroup, group_id=group, topics=topics, error_code=code),)
    return make(parts.OffsetFetchResponse, topics=topics, groups=groups, error_code=code)


def _committed(kind: Any, number: int, value: OffsetAndMetadata | int | None) -> Any:
    if isinstance(value, OffsetAndMetadata):
        return make(
            kind,
            partition_index=number,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
        )
    return make(kind, partition_index=number, committed_offset=-1, metadata="", error_code=value or 0)
