"""The meaning of the error codes in a heartbeat's answer, and advice for those that are final.

Thread: none (pure).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from multilane.broker_codes import BROKER_CODES
from multilane.client.group.membership import MemberPolicy, Subscription
from multilane.errors import BrokerError, GroupError, GroupRefused, InstanceFenced, InstanceInUse, broker_error
from multilane.wire.compose_members import JOIN_EPOCH

UNSUPPORTED_VERSION: Final = 35

_GROUP_ID_NOT_FOUND: Final = 69
_FENCED_INSTANCE: Final = 82
_UNRELEASED_INSTANCE: Final = 111


class HeartbeatError(enum.Enum):
    BACK_OFF = "retry later, at the same coordinator"
    FIND_COORDINATOR = "find the coordinator and retry"
    FENCED = "no longer a member"
    REPORT = "report to the application and retry"
    UNSUPPORTED = "the broker does not support this protocol"
    FINAL = "a retry does not help"


_MEANINGS: Final[Mapping[int, HeartbeatError]] = {
    14: HeartbeatError.BACK_OFF,  # COORDINATOR_LOAD_IN_PROGRESS
    15: HeartbeatError.FIND_COORDINATOR,  # COORDINATOR_NOT_AVAILABLE
    16: HeartbeatError.FIND_COORDINATOR,  # NOT_COORDINATOR
    25: HeartbeatError.FENCED,  # UNKNOWN_MEMBER_ID
    29: HeartbeatError.REPORT,  # TOPIC_AUTHORIZATION_FAILED: succeeds once access is granted
    UNSUPPORTED_VERSION: HeartbeatError.UNSUPPORTED,
    110: HeartbeatError.FENCED,  # FENCED_MEMBER_EPOCH
}

_ADVICE: Final[Mapping[int, str]] = {
    24: "set a group.id that is not empty",
    29: "grant this user Describe on the subscribed topics; retried until then",
    30: "grant this user Read on the group",
    UNSUPPORTED_VERSION: "the cluster does not offer the consumer protocol (KIP-848): set group.protocol=classic, or "
    "upgrade the cluster to Kafka 4.0 or later",
    42: "this client and the broker disagree on the contents of a heartbeat: set group.protocol=classic",
    _GROUP_ID_NOT_FOUND: "the group has members of another protocol and the broker does not convert it: stop them, set "
    "group.protocol=classic, or enable conversion on the broker (group.consumer.migration.policy)",
    81: "the group is full: run fewer members, or raise group.consumer.max.size on the brokers",
    112: "the brokers do not have this assignor: set group.remote.assignor to one of "
    "group.consumer.assignors, or omit it",
    128: "the pattern is not valid RE2/J, which has no look-around and no back-references",
}


def meaning(code: int, epoch: int) -> HeartbeatError:
    if code == _GROUP_ID_NOT_FOUND and epoch != JOIN_EPOCH:
        return HeartbeatError.FENCED  # the member's group is gone
    found = _MEANINGS.get(code)
    if found is None:
        found = HeartbeatError.BACK_OFF if BROKER_CODES.get(code, ("", False, False))[1] else HeartbeatError.FINAL
    return found


def refusal(code: int, text: str | None, policy: MemberPolicy) -> GroupError:
    """The error for the application: the broker's answer and advice."""
    config = policy.group
    error = broker_error(code, f"the heartbeat of {policy.name} to group {config.group_id}", text)
    if code == _UNRELEASED_INSTANCE:
        return InstanceInUse(
            f"{error}; a live member has group.instance.id {config.group_instance_id!r} already: give each member its "
            "own, or stop the other one (one that died is released when its session times out)"
        )
    if code == _FENCED_INSTANCE:
        return InstanceFenced(
            f"{error}; another member has taken over group.instance.id {config.group_instance_id!r}: give each its own"
        )
    kind = GroupError if meaning(code, JOIN_EPOCH) is HeartbeatError.REPORT else GroupRefused
    return kind(f"{error}; {_advice(error)}")


def version_refusal(subscription: Subscription, policy: MemberPolicy) -> GroupError:
    if subscription.regex is None:
        return refusal(UNSUPPORTED_VERSION, None, policy)
    return GroupRefused(
        f"group {policy.group.group_id}: the brokers cannot match a pattern (this needs Kafka 4.0 or later): subscribe "
        "to topics by name, or with a Python pattern"
    )


def _advice(error: BrokerError) -> str:
    return _ADVICE.get(error.code, "see the broker's log for the reason, then unsubscribe() and subscribe() again")
