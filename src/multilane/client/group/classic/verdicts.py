"""The effect of an error on a classic member, and advice for an error that ends the membership.

Thread: none (pure).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from multilane.errors import (
    AuthenticationError,
    BrokerError,
    GroupRefused,
    InstanceFenced,
    MultilaneError,
    broker_error,
    printable,
)

if TYPE_CHECKING:
    from multilane.config.group import GroupConfig


class ErrorVerdict(enum.Enum):
    PASSING = "passing"  # the coordinator moved, is loading or is unreachable: retried after a while
    LOGIN = "login"  # the login was refused; retried, in case it is accepted later
    REBALANCE = "rebalance"
    STALE = "stale"  # the group moved on without this member; it may still know the member id
    UNKNOWN = "unknown"  # the group does not know this member
    NEEDS_ID = "needs id"
    FATAL = "fatal"


_ILLEGAL_GENERATION: Final = 22
_UNKNOWN_MEMBER_ID: Final = 25
_REBALANCE_IN_PROGRESS: Final = 27
_MEMBER_ID_REQUIRED: Final = 79
_FENCED_INSTANCE_ID: Final = 82

_BY_CODE: Final = {
    _ILLEGAL_GENERATION: ErrorVerdict.STALE,
    _UNKNOWN_MEMBER_ID: ErrorVerdict.UNKNOWN,
    _REBALANCE_IN_PROGRESS: ErrorVerdict.REBALANCE,
    _MEMBER_ID_REQUIRED: ErrorVerdict.NEEDS_ID,
}

_INCONSISTENT_PROTOCOL: Final = 23
_ADVICE: Final = {
    _INCONSISTENT_PROTOCOL: (
        "the other members have no assignor in common with partition.assignment.strategy ({strategy}), or the group "
        "is not a consumer group; give all members a common assignor, or use another group.id"
    ),
    24: "set another group.id",
    26: (
        "session.timeout.ms ({session} ms) is outside the range that the broker allows "
        "(group.min.session.timeout.ms to group.max.session.timeout.ms)"
    ),
    30: "grant READ on the group to this user",
    81: "the group is full; run fewer members or raise the broker's group.max.size",
}


def judge(error: MultilaneError) -> ErrorVerdict:
    if isinstance(error, AuthenticationError):
        return ErrorVerdict.LOGIN
    if isinstance(error, BrokerError) and error.code in _BY_CODE:
        return _BY_CODE[error.code]
    return ErrorVerdict.PASSING if error.retriable else ErrorVerdict.FATAL


def advised(error: MultilaneError, config: GroupConfig) -> MultilaneError:
    """An error that ends the membership, with advice for the user."""
    if not isinstance(error, BrokerError):
        return error
    group = printable(config.group_id, 100)
    if error.code == _FENCED_INSTANCE_ID:
        return InstanceFenced(
            f"another process joined group {group} with group.instance.id={printable(config.group_instance_id, 100)} "
            "and replaced this member; give each process its own group.instance.id"
        )
    advice = _ADVICE.get(error.code)
    if advice is None:
        return error
    known = {"strategy": ", ".join(config.partition_assignment_strategy), "session": int(config.session_timeout * 1000)}
    return GroupRefused(f"{error}; {advice.format(**known)}")


def refused_pattern(config: GroupConfig) -> GroupRefused:
    return GroupRefused(
        f"group {printable(config.group_id, 100)} uses the classic protocol, in which brokers do not match patterns; "
        "subscribe with a Python pattern, or set group.protocol=consumer"
    )


def inconsistent(what: str, text: str) -> BrokerError:
    """The error for an answer with a protocol that we did not offer: INCONSISTENT_GROUP_PROTOCOL, as if the broker had
    returned it."""
    return broker_error(_INCONSISTENT_PROTOCOL, what, text)


def is_fenced_instance(error: MultilaneError) -> bool:
    return isinstance(error, InstanceFenced) or (isinstance(error, BrokerError) and error.code == _FENCED_INSTANCE_ID)
