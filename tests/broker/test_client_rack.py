"""KIP-392: records come from the replica in the consumer's own rack, and from the leader when that one is gone."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from broker.flow import Flow
from broker.produce import numbered, produce
from broker.reading import poll_until, read_rows, row
from multilane import Consumer, TopicPartition
from multilane.metrics.observer import Counts

pytestmark = [pytest.mark.broker, pytest.mark.cluster]


def near(cluster, topic: str, node: int) -> tuple[Consumer, Counts]:
    """A consumer in the rack of a node, and what it fetched."""
    counts = Counts()
    properties = {
        "bootstrap.servers": cluster.bootstrap(),
        "auto.offset.reset": "earliest",
        "client.rack": f"rack-{node}",
        "request.timeout.ms": 3_000,
    }
    consumer = Consumer(properties, observer=counts)
    consumer.assign([TopicPartition(topic, 0)])
    return consumer, counts


@pytest.fixture
def leader_and_follower(cluster, eventually):
    """Of a topic. Whichever broker is asked may not have heard of it yet."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})

    def find(topic: str) -> tuple[int, int]:
        leaders: list[int] = []

        def is_known() -> bool:
            partition = admin.list_topics(topic, timeout=10).topics[topic].partitions.get(0)
            leaders[:] = [] if partition is None or partition.leader < 0 else [int(partition.leader)]
            return bool(leaders)

        eventually(is_known)
        return leaders[0], leaders[0] % 3 + 1

    return find


def fetched(counts: Counts) -> dict[int, float]:
    return {int(broker): size for broker, size in counts.by("broker", "fetch.bytes").items()}


def test_records_come_from_the_replica_nearby(cluster, cluster_topic, leader_and_follower):
    name = cluster_topic()
    leader, follower = leader_and_follower(name)
    written = produce(cluster.bootstrap(), name, numbered(0, 2_000, size=1_000), acks="all", linger_ms=20)
    consumer, counts = near(cluster, name, follower)
    with consumer:
        assert read_rows(consumer, 2_000) == written
    sizes = fetched(counts)
    assert set(sizes) == {leader, follower}
    assert sizes[follower] > 2_000_000
    assert sizes[leader] < 10_000  # only where to read


def test_without_a_rack_the_leader_is_read(cluster, cluster_topic, leader_and_follower):
    name = cluster_topic()
    leader, _ = leader_and_follower(name)
    written = produce(cluster.bootstrap(), name, numbered(0, 100), acks="all")
    consumer, counts = near(cluster, name, 99)
    with consumer:
        assert read_rows(consumer, 100) == written
    assert set(fetched(counts)) == {leader}


@pytest.mark.long
def test_the_leader_is_read_while_the_replica_is_away(cluster, cluster_topic, leader_and_follower):
    name = cluster_topic(min_insync_replicas=2)
    leader, follower = leader_and_follower(name)
    consumer, counts = near(cluster, name, follower)
    rows = []

    def until(goal) -> None:
        poll_until(consumer, goal, lambda blocks: rows.extend(map(row, blocks.records())), 60)

    with consumer, Flow(cluster, name, 1) as flow:
        until(lambda: len(rows) > 200)
        assert fetched(counts)[follower] > fetched(counts)[leader]
        cluster.kill(follower)
        there, before = len(flow.acknowledged[0]), fetched(counts)
        until(lambda: len(rows) > there + 200)
        assert fetched(counts)[leader] - before[leader] > 200 * 10
        cluster.start(follower)
        back = fetched(counts)[follower]
        until(lambda: fetched(counts)[follower] > back + 1_000)
        [written] = flow.end().values()
        until(lambda: len(rows) >= written)
    assert [r.offset for r in rows] == list(range(written))
    assert [r.value for r in rows] == flow.acknowledged[0]
