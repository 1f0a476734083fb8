"""Composes the consumer's requests in the version negotiated with a broker.

Thread: none (pure).

Request managers pass plain values; the functions here turn them into a kio entity of the negotiated version. Fields
that a version does not have are left out, which is only correct for optional fields: `*_AT_LEAST` is the lowest version
that keeps a request's meaning, and negotiation refuses older ones. Kafka 2.7 and later support all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import cache
from typing import Any, Final
from uuid import UUID

from multilane.types import TopicPartition
from multilane.wire.messages import ApiKey, request_type

METADATA_AT_LEAST: Final = 9
IDS_AT_LEAST: Final = 12  # Metadata by topic ids
LIST_OFFSETS_AT_LEAST: Final = 5
MAX_TIMESTAMP_AT_LEAST: Final = 7
EPOCH_AT_LEAST: Final = 3
FETCH_AT_LEAST: Final = 12
FETCH_WITH_TOPIC_IDS: Final = 13

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3

_CONSUMER_REPLICA: Final = -1
_LARGEST_INT32: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class FetchItem:
    """One partition in a fetch request."""

    topic: str
    topic_id: UUID | None
    partition: int
    offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchClass:
    """The fields of a fetch request that apply to all its partitions."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    rack: str


@dataclass(frozen=True, slots=True)
class SessionStep:
    """The id and epoch of a request in its fetch session (KIP-227)."""

    id: int
    epoch: int


def metadata_request(version: int, topics: Sequence[str] | None, *, create: bool, ids: Sequence[UUID] = ()) -> Any:
    """Metadata of the named topics, of all (None), or of the brokers alone (an empty sequence). With `ids`, only of the
    topics with these ids: a broker that gets ids ignores names. Ids need `IDS_AT_LEAST`."""
    parts = _parts(ApiKey.METADATA, version)
    wanted = None
    if ids:
        wanted = tuple(parts.MetadataRequestTopic(topic_id=i, name=None) for i in ids)
    elif topics is not None:
        wanted = tuple(_make(parts.MetadataRequestTopic, topic_id=None, name=t) for t in topics)
    return _make(
        parts.MetadataRequest,
        topics=wanted,
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def list_offsets_request(
    version: int,
    wanted: Mapping[TopicPartition, tuple[int, int]],
    *,
    read_committed: bool,
    timeout_ms: int,
) -> Any:
    """ListOffsets for partition -> (timestamp or EARLIEST/LATEST/MAX_TIMESTAMP, current leader epoch)."""
    parts = _parts(ApiKey.LIST_OFFSETS, version)
    topics = tuple(
        parts.ListOffsetsTopic(
            name=topic,
            partitions=tuple(
                _make(
                    parts.ListOffsetsPartition,
                    partition_index=tp.partition,
                    current_leader_epoch=wanted[tp][1],
                    timestamp=wanted[tp][0],
                )
                for tp in partitions
            ),
        )
        for topic, partitions in _by_topic(wanted).items()
    )
    return _make(
        parts.ListOffsetsRequest,
        replica_id=_CONSUMER_REPLICA,
        isolation_level=int(read_committed),
        topics=topics,
        timeout=_milliseconds(timeout_ms),
    )


def epoch_request(version: int, wanted: Mapping[TopicPartition, tuple[int, int]]) -> Any:
    """OffsetForLeaderEpoch for partition -> (current leader epoch, epoch of our last record)."""
    parts = _parts(ApiKey.OFFSET_FOR_LEADER_EPOCH, version)
    topics = tuple(
        parts.OffsetForLeaderTopic(
            topic=topic,
            partitions=tuple(
                parts.OffsetForLeaderPartition(
                    partition=tp.partition, current_leader_epoch=wanted[tp][0], leader_epoch=wanted[tp][1]
                )
                for tp in partitions
            ),
        )
        for topic, partitions in _by_topic(wanted).items()
    )
    return parts.OffsetForLeaderEpochRequest(replica_id=_CONSUMER_REPLICA, topics=topics)


def fetch_request(
    version: int,
    kind: FetchClass,
    items: Iterable[FetchItem],
    forgotten: Iterable[FetchItem],
    session: SessionStep,
) -> Any:
    parts = _parts(ApiKey.FETCH, version)
    topics = tuple(
        _make(
            parts.FetchTopic,
            topic=name,
            topic_id=topic_id,
            partitions=tuple(
                parts.FetchPartition(
                    partition=i.partition,
                    current_leader_epoch=i.leader_epoch,
                    fetch_offset=i.offset,
                    partition_max_bytes=i.max_bytes,
                )
                for i in of_topic
            ),
        )
        for (name, topic_id), of_topic in _items_by_topic(items).items()
    )
    dropped = tuple(
        _make(parts.ForgottenTopic, topic=name, topic_id=topic_id, partitions=tuple(i.partition for i in of_topic))
        for (name, topic_id), of_topic in _items_by_topic(forgotten).items()
    )
    return _make(
        parts.FetchRequest,
        max_wait=_milliseconds(kind.max_wait_ms),
        min_bytes=kind.min_bytes,
        max_bytes=kind.max_bytes,
        isolation_level=int(kind.read_committed),
        session_id=session.id,
        session_epoch=session.epoch,
        topics=topics,
        forgotten_topics_data=dropped,
        rack_id=kind.rack,
        replica_id=_CONSUMER_REPLICA,
    )


def _milliseconds(value: float) -> timedelta:
    return timedelta(milliseconds=min(max(0, int(value)), _LARGEST_INT32))


def _by_topic(wanted: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    groups: dict[str, list[TopicPartition]] = {}
    for tp in wanted:
        groups.setdefault(tp.topic, []).append(tp)
    return groups


def _items_by_topic(items: Iterable[FetchItem]) -> dict[tuple[str, UUID | None], list[FetchItem]]:
    groups: dict[tuple[str, UUID | None], list[FetchItem]] = {}
    for item in items:
        groups.setdefault((item.topic, item.topic_id), []).append(item)
    return groups


def _parts(api: ApiKey, version: int) -> Any:
    """The kio module of a request: the request class and its entities."""
    return sys.modules[request_type(api, version).__module__]


@cache
def _field_names(kind: type) -> frozenset[str]:
    return frozenset(f.name for f in fields(kind))


def _make(kind: Any, **values: object) -> Any:
    names = _field_names(kind)
    return kind(**{name: value for name, value in values.items() if name in names})
