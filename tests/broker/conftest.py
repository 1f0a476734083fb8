"""Real Kafka for tests: started by the first test that asks, once for a session.

`kafka` is one node with every kind of listener, `cluster` three nodes for tests that kill some, `topic` and
`cluster_topic` make fresh topics.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.timers import NEVER_STOPPED, SHORT_SESSIONS
from broker.topics import TopicFactory, topic_factory
from multilane.dev.kafka import KafkaCluster

USER = "alice"
PASSWORD = 'wonder "land" \\ 7'
LISTENERS = ("PLAINTEXT", "SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """One node for the whole session. Not for tests that stop it: those start their own."""
    with KafkaCluster(
        listeners=LISTENERS, users={USER: PASSWORD}, properties=SHORT_SESSIONS | NEVER_STOPPED
    ) as started:
        yield started


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[KafkaCluster]:
    nearest = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with KafkaCluster(nodes=3, heap="384m", properties=nearest | SHORT_SESSIONS) as started:
        yield started


@pytest.fixture
def cluster(running_cluster: KafkaCluster) -> Iterator[KafkaCluster]:
    """Three nodes. A test may kill, stop or pause them: they are all brought back afterwards."""
    yield running_cluster
    for node in range(1, running_cluster.nodes + 1):
        if running_cluster.running(node):
            running_cluster.resume(node)
        else:
            running_cluster.start(node)
    running_cluster.wait_ready()


@pytest.fixture(scope="session")
def credentials() -> tuple[str, str]:
    """The user of the `kafka` fixture's SASL listeners."""
    return USER, PASSWORD


@pytest.fixture(scope="session")
def topic(kafka: KafkaCluster) -> TopicFactory:
    """`topic(partitions=1, replication=1, **config)` makes a topic with a fresh name on `kafka`."""
    return topic_factory(kafka)


@pytest.fixture
def cluster_topic(cluster: KafkaCluster) -> TopicFactory:
    """The same on `cluster`, three replicas unless told otherwise."""
    return topic_factory(cluster)
