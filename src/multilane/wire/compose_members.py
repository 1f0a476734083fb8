"""Composes the heartbeat of a consumer group's member (KIP-848): join, stay, acknowledge and leave in one request.

Thread: none (pure).

The same rules as in `wire.compose`: plain values in, a kio entity of the negotiated version out. A field that is None
has not changed since it was last sent to the coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from multilane.wire.compose import _make, _milliseconds, _parts
from multilane.wire.messages import ApiKey

HEARTBEAT_AT_LEAST: Final = 0
REGEX_AT_LEAST: Final = 1

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2


@dataclass(frozen=True, slots=True)
class MemberHeartbeat:
    """A member's heartbeat. `owned` is by topic id; an empty `regex` cancels an earlier subscription by regex."""

    group: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout: float | None = None
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Mapping[UUID, Collection[int]] | None = None


def member_heartbeat_request(version: int, heartbeat: MemberHeartbeat) -> Any:
    parts = _parts(ApiKey.CONSUMER_GROUP_HEARTBEAT, version)
    owned = None
    if heartbeat.owned is not None:
        owned = tuple(
            parts.TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
            for topic_id, numbers in sorted(heartbeat.owned.items())
        )
    timeout: dict[str, object] = {}
    if heartbeat.rebalance_timeout is not None:  # left out, it means unchanged
        timeout["rebalance_timeout"] = _milliseconds(heartbeat.rebalance_timeout * 1_000)
    return _make(
        parts.ConsumerGroupHeartbeatRequest,
        group_id=heartbeat.group,
        member_id=heartbeat.member_id,
        member_epoch=heartbeat.epoch,
        instance_id=heartbeat.instance_id,
        rack_id=heartbeat.rack,
        subscribed_topic_names=heartbeat.topics,
        subscribed_topic_regex=heartbeat.regex,
        server_assignor=heartbeat.assignor,
        topic_partitions=owned,
        **timeout,
    )
