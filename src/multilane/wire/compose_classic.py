"""Composes the requests of a classic group's member: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Thread: none (pure).

The same rules as in `wire.compose`: plain values in, a kio entity of the negotiated version out, and `*_AT_LEAST` is
the lowest version that keeps the meaning. These versions support static members; Kafka 2.4 and later have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from multilane.wire.compose import _make, _milliseconds, _parts
from multilane.wire.messages import ApiKey

JOIN_GROUP_AT_LEAST: Final = 5
SYNC_GROUP_AT_LEAST: Final = 3
HEARTBEAT_AT_LEAST: Final = 3
LEAVE_GROUP_AT_LEAST: Final = 3

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_REASON_CHARACTERS: Final = 255  # the brokers' limit


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """A member's identity in every request."""

    group: str
    member_id: str
    instance_id: str | None
    generation: int = -1


@dataclass(frozen=True, slots=True)
class JoinTimes:
    """Seconds: without heartbeats until a member is dead, and the longest that a group waits for members to rejoin."""

    session: float
    rebalance: float


def join_group_request(
    version: int, member: ClassicMember, times: JoinTimes, protocols: Sequence[tuple[str, bytes]], reason: str
) -> Any:
    """`protocols` are (assignor's name, subscription), the preferred one first."""
    parts = _parts(ApiKey.JOIN_GROUP, version)
    return _make(
        parts.JoinGroupRequest,
        group_id=member.group,
        session_timeout=_milliseconds(times.session * 1000),
        rebalance_timeout=_milliseconds(times.rebalance * 1000),
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=tuple(parts.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols),
        reason=reason[:_REASON_CHARACTERS],
    )


def sync_group_request(version: int, member: ClassicMember, protocol: str, assignments: Mapping[str, bytes]) -> Any:
    """`assignments` are those of all members if the leader sends the request, else none."""
    parts = _parts(ApiKey.SYNC_GROUP, version)
    return _make(
        parts.SyncGroupRequest,
        group_id=member.group,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=tuple(
            parts.SyncGroupRequestAssignment(member_id=member_id, assignment=data)
            for member_id, data in assignments.items()
        ),
    )


def heartbeat_request(version: int, member: ClassicMember) -> Any:
    return _make(
        _parts(ApiKey.HEARTBEAT, version).HeartbeatRequest,
        group_id=member.group,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
    )


def leave_group_request(version: int, member: ClassicMember, reason: str) -> Any:
    parts = _parts(ApiKey.LEAVE_GROUP, version)
    identity = _make(
        parts.MemberIdentity,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        reason=reason[:_REASON_CHARACTERS],
    )
    return _make(parts.LeaveGroupRequest, group_id=member.group, members=(identity,))
