"""Builds the request that removes a dead member from its group, for both protocols.

Thread: none (pure).
"""

from __future__ import annotations

from typing import Any

from multilane.client.admin.admin_requests import AdminRequest
from multilane.client.group.membership import Identity
from multilane.errors import MultilaneError, broker_error
from multilane.wire.compose_classic import LEAVE_GROUP_AT_LEAST, ClassicMember, leave_group_request
from multilane.wire.compose_members import (
    HEARTBEAT_AT_LEAST,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    MemberHeartbeat,
    member_heartbeat_request,
)
from multilane.wire.messages import ApiKey

_CLASSIC = "classic"
_REASON = "its process died"


def leave_request(member: Identity) -> AdminRequest:
    if member.protocol == _CLASSIC:
        leaving = ClassicMember(member.group, member.member_id, member.instance_id, member.epoch)
        return AdminRequest(
            ApiKey.LEAVE_GROUP,
            lambda version: leave_group_request(version, leaving, _REASON),
            LEAVE_GROUP_AT_LEAST,
            lambda response: _error_in(response, member),
        )
    epoch = LEAVE_EPOCH if member.instance_id is None else LEAVE_STATIC_EPOCH
    heartbeat = MemberHeartbeat(member.group, member.member_id, epoch, member.instance_id)
    return AdminRequest(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        lambda version: member_heartbeat_request(version, heartbeat),
        HEARTBEAT_AT_LEAST,
        lambda response: _error_in(response, member),
    )


def _error_in(response: Any, member: Identity) -> MultilaneError | None:
    codes = [int(response.error_code), *(int(m.error_code) for m in getattr(response, "members", None) or ())]
    code = next(filter(None, codes), 0)
    return broker_error(code, f"LeaveGroup of group {member.group} for a dead member") if code else None
