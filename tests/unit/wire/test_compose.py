"""Requests of every version this client may speak, read back as a broker would."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from multilane.types import TopicPartition
from multilane.wire.compose import (
    EARLIEST,
    EPOCH_AT_LEAST,
    FETCH_AT_LEAST,
    FETCH_WITH_TOPIC_IDS,
    LATEST,
    LIST_OFFSETS_AT_LEAST,
    MAX_TIMESTAMP,
    METADATA_AT_LEAST,
    FetchClass,
    FetchItem,
    SessionStep,
    epoch_request,
    fetch_request,
    list_offsets_request,
    metadata_request,
)
from multilane.wire.messages import ApiKey, encode_request
from multilane.wire.versions import SPOKEN
from response_builder import read_request

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def _versions(api: ApiKey, least: int) -> range:
    return range(least, SPOKEN[api][1] + 1)


def _read(entity, api, version):
    read_api, read_version, correlation, read = read_request(encode_request(entity, 5, "me")[4:])
    assert (read_api, read_version, correlation) == (api, version, 5)
    assert read == entity
    return read


@pytest.mark.parametrize("version", _versions(ApiKey.METADATA, METADATA_AT_LEAST))
def test_metadata(version):
    named = _read(metadata_request(version, ["a", "b"], create=True), ApiKey.METADATA, version)
    assert [t.name for t in named.topics] == ["a", "b"]
    assert named.allow_auto_topic_creation
    assert _read(metadata_request(version, None, create=False), ApiKey.METADATA, version).topics is None
    brokers_only = _read(metadata_request(version, [], create=False), ApiKey.METADATA, version)
    assert brokers_only.topics == ()
    assert not brokers_only.allow_auto_topic_creation


@pytest.mark.parametrize("version", _versions(ApiKey.LIST_OFFSETS, LIST_OFFSETS_AT_LEAST))
def test_list_offsets(version):
    wanted = {A0: (EARLIEST, 3), B0: (LATEST, 4), A1: (MAX_TIMESTAMP, -1)}
    request = list_offsets_request(version, wanted, read_committed=True, timeout_ms=30_000)
    read = _read(request, ApiKey.LIST_OFFSETS, version)
    told = {
        TopicPartition(t.name, p.partition_index): (p.timestamp, p.current_leader_epoch)
        for t in read.topics
        for p in t.partitions
    }
    assert told == wanted
    assert [t.name for t in read.topics] == ["a", "b"]
    assert (read.replica_id, read.isolation_level) == (-1, 1)


@pytest.mark.parametrize("version", _versions(ApiKey.OFFSET_FOR_LEADER_EPOCH, EPOCH_AT_LEAST))
def test_offset_for_leader_epoch(version):
    wanted = {A0: (7, 5), A1: (8, 6)}
    read = _read(epoch_request(version, wanted), ApiKey.OFFSET_FOR_LEADER_EPOCH, version)
    told = {
        TopicPartition(t.topic, p.partition): (p.current_leader_epoch, p.leader_epoch)
        for t in read.topics
        for p in t.partitions
    }
    assert told == wanted
    assert read.replica_id == -1


@pytest.mark.parametrize("version", _versions(ApiKey.FETCH, FETCH_AT_LEAST))
@pytest.mark.parametrize("read_committed", [False, True])
def test_fetch(version, read_committed):
    a, b = UUID(int=1), UUID(int=2)
    kind = FetchClass(500, 1, 1 << 20, read_committed, "rack-1")
    items = [
        FetchItem("a", a, 0, 10, 3, 1_000),
        FetchItem("b", b, 5, 20, -1, 2_000),
        FetchItem("a", a, 1, 11, 3, 1_000),
    ]
    forgotten = [FetchItem("a", a, 7, 0, 0, 0)]
    read = _read(fetch_request(version, kind, items, forgotten, SessionStep(9, 4)), ApiKey.FETCH, version)
    by_id = version >= FETCH_WITH_TOPIC_IDS
    names = {a: "a", b: "b"}
    told = [
        (names[t.topic_id] if by_id else t.topic, p.partition, p.fetch_offset, p.current_leader_epoch)
        for t in read.topics
        for p in t.partitions
    ]
    assert told == [("a", 0, 10, 3), ("a", 1, 11, 3), ("b", 5, 20, -1)]
    assert [p.partition_max_bytes for t in read.topics for p in t.partitions] == [1_000, 1_000, 2_000]
    assert [(t.topic_id if by_id else t.topic, t.partitions) for t in read.forgotten_topics_data] == [
        (a if by_id else "a", (7,))
    ]
    assert (read.session_id, read.session_epoch, read.rack_id) == (9, 4, "rack-1")
    assert (read.max_wait, read.min_bytes, read.max_bytes) == (timedelta(milliseconds=500), 1, 1 << 20)
    assert read.isolation_level == int(read_committed)


@pytest.mark.parametrize(("asked", "sent"), [(-5, 0), (2**40, 2**31 - 1)])
def test_times_stay_in_the_range_of_the_protocol(asked, sent):
    read = _read(fetch_request(17, FetchClass(asked, 1, 1, False, ""), [], [], SessionStep(0, 0)), ApiKey.FETCH, 17)
    assert read.max_wait == timedelta(milliseconds=sent)
