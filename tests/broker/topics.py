"""Fresh topics for tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from confluent_kafka.admin import AdminClient, NewTopic

from multilane.dev.kafka import KafkaCluster

TopicFactory = Callable[..., str]


def topic_factory(cluster: KafkaCluster) -> TopicFactory:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})

    def make(partitions: int = 1, replication: int | None = None, **config: object) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        # Records of tests may be as old as they like: brokers look for what is too old soon after their start.
        dotted = {"retention.ms": "-1"} | {key.replace("_", "."): str(value) for key, value in config.items()}
        wanted = NewTopic(name, partitions, replication or cluster.nodes, config=dotted)
        admin.create_topics([wanted], operation_timeout=30)[name].result(30)
        _wait_leaders(admin, name, partitions)
        return name

    return make


def _wait_leaders(admin: AdminClient, name: str, partitions: int) -> None:
    """The controller answers before every broker has heard; a test should not meet UNKNOWN_TOPIC for that."""
    for _ in range(200):
        found = admin.list_topics(name, timeout=10).topics[name]
        if len(found.partitions) == partitions and all(p.leader >= 0 for p in found.partitions.values()):
            return
    raise AssertionError(f"{name} has no leaders")
