"""What the errors in a heartbeat's answer mean, and what to do about those that are final.

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
    BACK_OFF = "try again later, at the same coordinator"
    LOOK_AGAIN = "find the coordinator and try again"
    FENCED = "no longer a member"
    TELL = "the application must know, but it may pass"
    UNSUPPORTED = "the broker does not speak this protocol"
    FINAL = "it will not get better"


_MEANINGS: Final[Mapping[int, HeartbeatError]] = {
    14: HeartbeatError.BACK_OFF,  # COORDINATOR_LOAD_IN_PROGRESS
    15: HeartbeatError.LOOK_AGAIN,  # COORDINATOR_NOT_AVAILABLE
    16: HeartbeatError.LOOK_AGAIN,  # NOT_COORDINATOR
    25: HeartbeatError.FENCED,  # UNKNOWN_MEMBER_ID
    29: HeartbeatError.TELL,  # TOPIC_AUTHORIZATION_FAILED: passes when somebody grants it
    UNSUPPORTED_VERSION: HeartbeatError.UNSUPPORTED,
    110: HeartbeatError.FENCED,  # FENCED_MEMBER_EPOCH
}

_ADVICE: Final[Mapping[int, str]] = {
    24: "write a group.id that is not empty",
    29: "grant this user Describe on the topics subscribed to; asked again until then",
    30: "grant this user Read on the group",
    UNSUPPORTED_VERSION: "the cluster does not offer the consumer protocol (KIP-848): set group.protocol=classic, or "
    "upgrade the cluster to Kafka 4.0 or later",
    42: "this client and the broker do not agree on what a heartbeat says: set group.protocol=classic",
    _GROUP_ID_NOT_FOUND: "the group has members of another kind and the broker does not convert it: stop them, set "
    "group.protocol=classic, or let the broker do it (group.consumer.migration.policy)",
    81: "the group is full: run fewer members, or raise group.consumer.max.size on the brokers",
    112: "the brokers do not have this assignor: set group.remote.assignor to one of "
    "group.consumer.assignors, or leave it out",
    128: "the pattern is not one of RE2/J: it has no look-around and no back-references",
}


def meaning(code: int, epoch: int) -> HeartbeatError:
    if code == _GROUP_ID_NOT_FOUND and epoch != JOIN_EPOCH:
        return HeartbeatError.FENCED  # the group we were in is gone
    found = _MEANINGS.get(code)
    if found is None:
        found = HeartbeatError.BACK_OFF if BROKER_CODES.get(code, ("", False, False))[1] else HeartbeatError.FINAL
    return found


def refusal(code: int, text: str | None, policy: MemberPolicy) -> GroupError:
    """The error that the application gets: what the broker said, and what to do."""
    config = policy.group
    told = broker_error(code, f"the heartbeat of {policy.name} to group {config.group_id}", text)
    if code == _UNRELEASED_INSTANCE:
        return InstanceInUse(
            f"{told}; a live member has group.instance.id {config.group_instance_id!r} already: give each member its "
            "own, or stop the other one (one that died is released when its session times out)"
        )
    if code == _FENCED_INSTANCE:
        return InstanceFenced(
            f"{told}; another member has taken over group.instance.id {config.group_instance_id!r}: give each its own"
        )
    error = GroupError if meaning(code, JOIN_EPOCH) is HeartbeatError.TELL else GroupRefused
    return error(f"{told}; {_advice(told)}")


def version_refusal(subscription: Subscription, policy: MemberPolicy) -> GroupError:
    if subscription.regex is None:
        return refusal(UNSUPPORTED_VERSION, None, policy)
    return GroupRefused(
        f"group {policy.group.group_id}: the brokers cannot match a pattern (that takes Kafka 4.0 or later): subscribe "
        "to topics by name, or with a Python pattern"
    )


def _advice(told: BrokerError) -> str:
    return _ADVICE.get(told.code, "see the broker's log for the reason, then unsubscribe() and subscribe() again")
