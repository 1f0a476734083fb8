"""Writes responses as brokers do: kio entities of any version, and the frames they travel in.

Plain values go in (numbers for error codes, dicts for partitions); fields that a version does not have are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from io import BytesIO
from types import MappingProxyType
from typing import Any
from uuid import UUID

import numpy as np
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32

from multilane.client.cluster import Cluster, Leadership, Topic
from multilane.types import LeaderEpoch, Node, NodeId, TopicPartition
from multilane.wire.messages import ApiKey, request_type, response_type
from multilane.wire.versions import SPOKEN

TOPIC_ID = UUID(int=0xABCDEF)


def response_parts(api: ApiKey, version: int) -> Any:
    """The kio module that holds a response and the entities it is made of."""
    return sys.modules[response_type(request_type(api, version)).__module__]


def make(kind: Any, **values: object) -> Any:
    names = {f.name for f in fields(kind)}
    given = {name: value for name, value in values.items() if name in names}
    if "error_code" in names:
        given["error_code"] = ErrorCode(int(given.get("error_code", 0)))  # type: ignore[call-overload]
    if "throttle_time" in names:
        given["throttle_time"] = timedelta(milliseconds=int(values.get("throttle_ms", 0)))  # type: ignore[call-overload]
    return kind(**given)


def frame_of(entity: Any, correlation_id: int) -> bytes:
    """A response frame from its correlation id on, without the length."""
    kind = type(entity)
    header = kind.__header_schema__
    out = BytesIO()
    entity_writer(header)(out, header(correlation_id=i32(correlation_id)))
    entity_writer(kind)(out, entity)
    return out.getvalue()


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def as_array(frame: bytes) -> np.ndarray:
    return np.frombuffer(frame, np.uint8).copy()


def read_request(frame: bytes) -> tuple[ApiKey, int, int, Any]:
    """(api, version, correlation id, entity) of a request frame without its length."""
    api, version = ApiKey(int.from_bytes(frame[:2], "big")), int.from_bytes(frame[2:4], "big")
    kind = request_type(api, version)
    header, size = entity_reader(kind.__header_schema__)(frame, 0)
    entity, _ = entity_reader(kind)(frame, size)
    return api, version, int(header.correlation_id), entity


# --- one function per response ---------------------------------------------------------------------------------------


def api_versions_response(
    version: int, offered: Mapping[int, tuple[int, int]] | None = None, *, code: int = 0, throttle_ms: int = 0
) -> Any:
    parts = response_parts(ApiKey.API_VERSIONS, version)
    ranges = {int(a): r for a, r in SPOKEN.items()} if offered is None else offered
    keys = tuple(
        make(parts.ApiVersion, api_key=i16(api), min_version=i16(low), max_version=i16(high))
        for api, (low, high) in ranges.items()
    )
    return make(parts.ApiVersionsResponse, error_code=code, api_keys=keys, throttle_ms=throttle_ms)


def metadata_response(
    version: int,
    nodes: Sequence[Node],
    topics: Mapping[str, Mapping[int, tuple[int, int]]],
    *,
    codes: Mapping[str, int] | None = None,
    ids: Mapping[str, UUID] | None = None,
    code: int = 0,
    throttle_ms: int = 0,
) -> Any:
    """Topics are name -> partition -> (leader id, leader epoch)."""
    parts = response_parts(ApiKey.METADATA, version)
    brokers = tuple(
        make(parts.MetadataResponseBroker, node_id=n.id, host=n.host, port=n.port, rack=n.rack) for n in nodes
    )
    told = tuple(
        make(
            parts.MetadataResponseTopic,
            error_code=(codes or {}).get(name, 0),
            name=name,
            topic_id=(ids or {}).get(name, TOPIC_ID),
            partitions=tuple(
                make(parts.MetadataResponsePartition, partition_index=number, leader_id=leader, leader_epoch=epoch)
                for number, (leader, epoch) in partitions.items()
            ),
        )
        for name, partitions in topics.items()
    )
    return make(
        parts.MetadataResponse,
        throttle_ms=throttle_ms,
        brokers=brokers,
        cluster_id="test-cluster",
        topics=told,
        error_code=code,
    )


def list_offsets_response(version: int, told: Mapping[TopicPartition, tuple[int, int, int]]) -> Any:
    """Partition -> (error code, timestamp, offset); the leader epoch is 4."""
    parts = response_parts(ApiKey.LIST_OFFSETS, version)
    topics = tuple(
        parts.ListOffsetsTopicResponse(
            name=tp.topic,
            partitions=(
                make(
                    parts.ListOffsetsPartitionResponse,
                    partition_index=tp.partition,
                    error_code=code,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=4,
                ),
            ),
        )
        for tp, (code, timestamp, offset) in told.items()
    )
    return make(parts.ListOffsetsResponse, topics=topics)


def epoch_response(version: int, told: Mapping[TopicPartition, tuple[int, int, int]]) -> Any:
    """Partition -> (error code, epoch, end offset of that epoch)."""
    parts = response_parts(ApiKey.OFFSET_FOR_LEADER_EPOCH, version)
    topics = tuple(
        parts.OffsetForLeaderTopicResult(
            topic=tp.topic,
            partitions=(
                make(parts.EpochEndOffset, error_code=code, partition=tp.partition, leader_epoch=epoch, end_offset=end),
            ),
        )
        for tp, (code, epoch, end) in told.items()
    )
    return make(parts.OffsetForLeaderEpochResponse, topics=topics)


def fetch_response(
    version: int,
    partitions: Mapping[TopicPartition, Mapping[str, Any]],
    *,
    session: int = 0,
    code: int = 0,
    throttle_ms: int = 0,
    ids: Mapping[str, UUID] | None = None,
    endpoints: Sequence[Node] = (),
) -> Any:
    """Per partition: code, high, stable, start, records (bytes), aborted, replica, leader (id, epoch), diverging."""
    parts = response_parts(ApiKey.FETCH, version)
    responses = tuple(
        make(
            parts.FetchableTopicResponse,
            topic=tp.topic,
            topic_id=(ids or {}).get(tp.topic, TOPIC_ID),
            partitions=(_fetched(parts, tp.partition, told),),
        )
        for tp, told in partitions.items()
    )
    nodes = ()
    if endpoints:
        nodes = tuple(make(parts.NodeEndpoint, node_id=n.id, host=n.host, port=n.port, rack=n.rack) for n in endpoints)
    return make(
        parts.FetchResponse,
        throttle_ms=throttle_ms,
        error_code=code,
        session_id=session,
        responses=responses,
        node_endpoints=nodes,
    )


def _fetched(parts: Any, number: int, told: Mapping[str, Any]) -> Any:
    tagged: dict[str, Any] = {}
    if "leader" in told:
        node, epoch = told["leader"]
        tagged["current_leader"] = parts.LeaderIdAndEpoch(leader_id=node, leader_epoch=epoch)
    if "diverging" in told:
        epoch, end = told["diverging"]
        tagged["diverging_epoch"] = parts.EpochEndOffset(epoch=epoch, end_offset=end)
    aborted = tuple(parts.AbortedTransaction(producer_id=p, first_offset=o) for p, o in told.get("aborted", ()))
    return make(
        parts.PartitionData,
        partition_index=number,
        error_code=told.get("code", 0),
        high_watermark=told.get("high", 1_000_000),
        last_stable_offset=told.get("stable", 1_000_000),
        log_start_offset=told.get("start", 0),
        aborted_transactions=aborted,
        preferred_read_replica=told.get("replica", -1),
        records=told.get("records"),
        **tagged,
    )


# --- the cluster that unit tests stand in ----------------------------------------------------------------------------


def cluster_of(
    leaders: Mapping[TopicPartition, tuple[int | None, int]],
    *,
    nodes: Sequence[int] = (1, 2, 3),
    ids: Mapping[str, UUID | None] | None = None,
) -> Cluster:
    topics: dict[str, dict[int, Leadership]] = {}
    for tp, (node, epoch) in leaders.items():
        leader = Leadership(None if node is None else NodeId(node), LeaderEpoch(epoch))
        topics.setdefault(tp.topic, {})[tp.partition] = leader
    return Cluster(
        id="test-cluster",
        nodes=MappingProxyType({NodeId(n): Node(NodeId(n), f"broker-{n}", 9092) for n in nodes}),
        topics=MappingProxyType(
            {
                name: Topic(name, (ids or {}).get(name, TOPIC_ID), MappingProxyType(partitions))
                for name, partitions in topics.items()
            }
        ),
    )
