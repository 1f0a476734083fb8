"""The heartbeat of a member of a consumer group (KIP-848): joining, staying, acknowledging and leaving in one request.

Thread: none (pure).

The same rules as in `wire.compose`: plain values in, a kio entity of the negotiated version out. A field that is None
has not changed since the coordinator last heard it.
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
    """What a member says. `owned` is by topic id; an empty `regex` takes back one that was subscribed before."""

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


def member_heartbeat_request(version: int, said: MemberHeartbeat) -> Any:
    parts = _parts(ApiKey.CONSUMER_GROUP_HEARTBEAT, version)
    owned = None
    if said.owned is not None:
        owned = tuple(
            parts.TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
            for topic_id, numbers in sorted(said.owned.items())
        )
    timeout: dict[str, object] = {}
    if said.rebalance_timeout is not None:  # left out, it says that it has not changed
        timeout["rebalance_timeout"] = _milliseconds(said.rebalance_timeout * 1_000)
    return _make(
        parts.ConsumerGroupHeartbeatRequest,
        group_id=said.group,
        member_id=said.member_id,
        member_epoch=said.epoch,
        instance_id=said.instance_id,
        rack_id=said.rack,
        subscribed_topic_names=said.topics,
        subscribed_topic_regex=said.regex,
        server_assignor=said.assignor,
        topic_partitions=owned,
        **timeout,
    )
