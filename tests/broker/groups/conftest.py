"""Groups are tested on three nodes: coordinators, leaders and members of a group are spread over them."""

from __future__ import annotations

import pytest

from broker.topics import TopicFactory, topic_factory
from multilane.dev.kafka import KafkaCluster


@pytest.fixture(scope="session")
def kafka(running_cluster: KafkaCluster) -> KafkaCluster:
    """Instead of the one node of the other tests. Who stops some of them asks for `cluster`."""
    return running_cluster


@pytest.fixture(scope="session")
def topic(kafka: KafkaCluster) -> TopicFactory:
    return topic_factory(kafka)
