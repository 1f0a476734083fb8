"""Fresh topics for tests."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from multilane.clock import SystemClock
from multilane.dev.kafka import KafkaCluster

TopicFactory = Callable[..., str]

_PATIENCE = 30.0
_TRIES = 3
_LOOK_SECONDS = 0.02


def topic_factory(cluster: KafkaCluster) -> TopicFactory:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})

    def make(partitions: int = 1, replication: int | None = None, **config: object) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        # Records of tests may be as old as they like: brokers look for what is too old soon after their start.
        dotted = {"retention.ms": "-1"} | {key.replace("_", "."): str(value) for key, value in config.items()}
        wanted = NewTopic(name, partitions, replication or cluster.nodes, config=dotted)
        _create(admin, wanted)
        _wait_leaders(admin, name, partitions)
        return name

    return make


def _create(admin: AdminClient, wanted: NewTopic) -> None:
    """A broker that has just begun, on a machine with much to do, may leave a request without an answer: ask again."""
    for _ in range(_TRIES):
        try:
            admin.create_topics([wanted], operation_timeout=_PATIENCE)[wanted.topic].result(_PATIENCE)
        except TimeoutError:
            continue
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        return
    raise AssertionError(f"{wanted.topic} was not created in {_TRIES} times {_PATIENCE:g} s")


def _wait_leaders(admin: AdminClient, name: str, partitions: int) -> None:
    """The controller answers before every broker has heard; a test should not meet UNKNOWN_TOPIC for that."""
    clock, look = SystemClock(), threading.Event()
    deadline = clock.monotonic() + _PATIENCE
    while clock.monotonic() < deadline:
        found = admin.list_topics(name, timeout=10).topics[name]
        if len(found.partitions) == partitions and all(p.leader >= 0 for p in found.partitions.values()):
            return
        look.wait(_LOOK_SECONDS)
    raise AssertionError(f"{name} has no leaders after {_PATIENCE:g} s")
