"""The properties that consumers of an app get beyond those of the configuration."""

from __future__ import annotations

import pytest

from multilane.config.app import ClusterConfig, ConsumerGroupConfig
from multilane.config.consumer import parse_consumer
from multilane.config.reset import ResetPolicy
from multilane.runtime.consumer_source import ConsumerSource, with_share_of_buffer

MEGABYTE = 1024 * 1024


def source(**facts):
    cluster = ClusterConfig(name="k", client_id="shop", brokers=("a:1",))
    return ConsumerSource(ConsumerGroupConfig(name="c", group_id="g", topic="t", cluster="k", **facts), cluster)


@pytest.mark.parametrize("properties", ["member_properties", "reader_properties"])
@pytest.mark.parametrize("initial", ["newest", "oldest"])
def test_where_a_new_group_starts_is_not_where_one_goes_on_that_has_lost_its_position(properties, initial):
    """With `newest` a group with a commit skipped records that it had not handled."""
    config = parse_consumer(getattr(source(offset_initial=initial), properties))
    assert config.auto_offset_reset.policy is {"newest": ResetPolicy.LATEST, "oldest": ResetPolicy.EARLIEST}[initial]
    assert config.lost_position_reset.policy is ResetPolicy.EARLIEST


def test_kafkas_meaning_is_there_for_those_who_ask_for_it():
    config = parse_consumer(source(properties={"lost.position.reset": "policy"}).member_properties)
    assert config.lost_position_reset.policy is ResetPolicy.LATEST


@pytest.mark.parametrize(("members", "megabytes"), [(1, 64), (4, 16), (31, 4)])
def test_members_of_one_process_share_the_memory_for_what_is_fetched_ahead(members, megabytes):
    """31 groups of an app had fetched 2 GB."""
    properties = {"fetch.buffer.bytes": 64 * MEGABYTE, "group.id": "g"}
    assert with_share_of_buffer(properties, members) == {**properties, "fetch.buffer.bytes": megabytes * MEGABYTE}


def test_a_buffer_that_someone_chose_stays():
    properties = {"fetch.buffer.bytes": 100 * MEGABYTE}
    assert with_share_of_buffer(properties, 31) == properties
