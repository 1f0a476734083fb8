"""Reads current topic metadata: the Metadata request as a single call.

Thread: none (pure).
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Final
from uuid import UUID

from multilane.client.calls import Call
from multilane.errors import MultilaneError, broker_error
from multilane.types import TopicPartition
from multilane.wire.compose import METADATA_AT_LEAST, metadata_request
from multilane.wire.messages import ApiKey

_UNKNOWN_TOPIC: Final = 3


def topic_metadata_call(topics: tuple[str, ...] | None, deadline: float) -> Call:
    """Metadata of these topics, or of all. A topic that does not exist is an error that is not retried."""
    return Call(
        api=ApiKey.METADATA,
        build=lambda version: metadata_request(version, topics, create=False),
        deadline=deadline,
        future=Future(),
        at_least=METADATA_AT_LEAST,
        judge=_judge,
    )


def _judge(response: Any) -> MultilaneError | None:
    for topic in response.topics:
        code = int(topic.error_code)
        if code == _UNKNOWN_TOPIC:
            error = broker_error(code, f"Metadata of topic {topic.name}")
            error.retriable = False
            return error
        if code:
            return broker_error(code, f"Metadata of topic {topic.name}")
    return None


def ids_of(response: Any) -> dict[str, UUID]:
    """Topic ids by name. Omits topics of brokers that have no topic ids."""
    ids = {str(topic.name): getattr(topic, "topic_id", None) for topic in response.topics}
    return {name: topic_id for name, topic_id in ids.items() if topic_id is not None}


def partitions_of(response: Any, topic: str) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic, number)
        for described in response.topics
        if described.name == topic
        for number in sorted(int(p.partition_index) for p in described.partitions)
    )
