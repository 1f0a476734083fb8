"""A member's heartbeat and Metadata by topic id, in the bytes that brokers read."""

from __future__ import annotations

from uuid import UUID

import pytest

from multilane.wire.compose import metadata_request
from multilane.wire.compose_members import MemberHeartbeat, member_heartbeat_request
from multilane.wire.messages import ApiKey, encode_request
from response_builder import read_request

A, B = UUID(int=1), UUID(int=2)


def _read(entity, api, version):
    told = read_request(encode_request(entity, 7, "c")[4:])
    assert told[:3] == (api, version, 7)
    return told[3]


@pytest.mark.parametrize("version", [0, 1])
def test_a_heartbeat_says_everything_or_next_to_nothing(version):
    full = MemberHeartbeat("g", "m", 0, "i", "r", 300.0, ("a", "b"), "x.*", "uniform", {B: [3, 1], A: []})
    said = _read(member_heartbeat_request(version, full), ApiKey.CONSUMER_GROUP_HEARTBEAT, version)
    assert (said.group_id, said.member_id, said.member_epoch, said.instance_id) == ("g", "m", 0, "i")
    assert (said.rack_id, said.rebalance_timeout.total_seconds(), said.server_assignor) == ("r", 300.0, "uniform")
    assert said.subscribed_topic_names == ("a", "b")
    assert getattr(said, "subscribed_topic_regex", "x.*") == "x.*"
    assert [(t.topic_id, t.partitions) for t in said.topic_partitions] == [(A, ()), (B, (1, 3))]
    said = _read(
        member_heartbeat_request(version, MemberHeartbeat("g", "m", 5)), ApiKey.CONSUMER_GROUP_HEARTBEAT, version
    )
    assert (said.member_epoch, said.rebalance_timeout.total_seconds()) == (5, -0.001)
    assert said.instance_id is said.rack_id is said.server_assignor is None
    assert said.subscribed_topic_names is said.topic_partitions is None


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_id_names_no_topic(version):
    asked = _read(metadata_request(version, ["t"], create=False, ids=[A, B]), ApiKey.METADATA, version)
    assert [(t.topic_id, t.name) for t in asked.topics] == [(A, None), (B, None)]
