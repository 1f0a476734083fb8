"""Subscriptions whose topics change: made later, grown, or named by a pattern."""

from __future__ import annotations

import re
import uuid

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from broker.group_members import KIP_848, PROTOCOLS, LiveGroup, fill, partitions_of
from multilane import ServerPattern, TopicPartition
from multilane.dev.kafka import KafkaCluster
from multilane.errors import GroupRefused

pytestmark = [pytest.mark.broker, pytest.mark.cluster]

# How often we look for what is new. Where the broker looks itself (RE2J), it does so every ten seconds at most.
PROMPT = {"metadata_max_age_ms": 500}


def make(kafka: KafkaCluster, name: str, partitions: int) -> list[TopicPartition]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap()})
    admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=30)[name].result(30)
    return partitions_of(name, partitions)


def grow(kafka: KafkaCluster, name: str, partitions: int) -> list[TopicPartition]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap()})
    admin.create_partitions([NewPartitions(name, partitions)], operation_timeout=30)[name].result(30)
    return partitions_of(name, partitions)


def prefix() -> str:
    return f"test-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_a_topic_may_be_made_after_the_subscription_and_grow(kafka, topic, variant):
    there, later = partitions_of(topic(1), 1), prefix()
    with LiveGroup(kafka, variant, [there[0].topic, later], **PROMPT) as live_group:
        live_group.join(2)
        live_group.settle(there)
        made = make(kafka, later, 1)
        live_group.settle([*there, *made], even=False)
        grown = grow(kafka, later, 3)
        live_group.settle([*there, *grown], even=False)
        ends = fill(kafka, grown, 0, 10)
        live_group.until(lambda: live_group.has_read(ends))


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_a_python_pattern_follows_the_topics_that_fit(kafka, variant):
    """The whole name has to fit, and Python's own abilities are there: look-ahead, for one."""
    start = prefix()
    fits = make(kafka, f"{start}-a", 2)
    make(kafka, f"{start}-a-backup", 1)
    make(kafka, f"other-{start}-b", 1)
    with LiveGroup(kafka, variant, re.compile(rf"{start}-(?!no)\w+"), **PROMPT) as live_group:
        live_group.join(2)
        live_group.settle(fits)
        make(kafka, f"{start}-not", 1)
        fits += make(kafka, f"{start}-b", 2)
        live_group.settle(fits)
        ends = fill(kafka, fits, 0, 10)
        live_group.until(lambda: live_group.has_read(ends))
        assert live_group.offsets().keys() == set(fits)


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_a_pattern_may_fit_nothing_yet(kafka, variant):
    start = prefix()
    with LiveGroup(kafka, variant, re.compile(f"{start}.*"), **PROMPT) as live_group:
        [member] = live_group.join()
        live_group.until(lambda: ("assigned", frozenset()) in member.steps or member.consumer.subscription is not None)
        fits = make(kafka, f"{start}-a", 1)
        live_group.settle(fits)


def test_the_broker_matches_a_pattern_of_its_own_language(kafka):
    start = prefix()
    fits = make(kafka, f"{start}-a", 2)
    make(kafka, f"other-{start}-b", 1)
    with LiveGroup(kafka, KIP_848, ServerPattern(f"{start}-[a-z]"), **PROMPT) as live_group:
        live_group.join(2)
        live_group.settle(fits)
        fits += make(kafka, f"{start}-b", 2)
        ends = fill(kafka, fits, 0, 10)
        live_group.settle(fits, timeout=40)
        live_group.until(lambda: live_group.has_read(ends))
        assert live_group.offsets().keys() == set(fits)


def test_a_pattern_that_the_broker_cannot_read_is_refused(kafka):
    with LiveGroup(kafka, KIP_848, ServerPattern("orders-(?!old).*")) as live_group:
        [member] = live_group.join()
        with pytest.raises(GroupRefused, match="RE2"):
            live_group.until(lambda: member.assignment, timeout=10)


def test_classic_groups_have_no_patterns_for_the_broker(kafka):
    with LiveGroup(kafka, "range", ServerPattern("orders-.*")) as live_group:
        [member] = live_group.join()
        with pytest.raises(GroupRefused, match="Python pattern"):
            live_group.until(lambda: member.assignment, timeout=10)
