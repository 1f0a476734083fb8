"""The meaning of a coordinator's answer to a commit, code by code.

Thread: none (pure).

One function judges the answer for one partition: the effect, and the error that the caller gets. It knows no state;
decisions that depend on state (a newer member epoch, how long a topic has been missing) belong to the manager.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from multilane.errors import (
    CommitDuringRebalance,
    CommitRefused,
    GroupRefused,
    InstanceFenced,
    MultilaneError,
    WireError,
    broker_error,
)
from multilane.types import OffsetAndMetadata, TopicPartition

OLD_GENERATION: Final = 22  # ILLEGAL_GENERATION


class Effect(enum.Enum):
    DONE = "done"
    RETRY = "again"  # retried after a while, at the same coordinator
    MOVED = "moved"  # retried after a while, at the new coordinator
    MISSING = "missing"  # the broker does not know the topic: retried for some seconds, it may be new
    STALE = "stale"  # retried with a newer member epoch
    REFUSED = "refused"
    FENCED = "fenced"  # refused, and we are no longer a member


_EFFECTS: Final[Mapping[int, Effect]] = {
    0: Effect.DONE,
    3: Effect.MISSING,  # UNKNOWN_TOPIC_OR_PARTITION
    7: Effect.MOVED,  # REQUEST_TIMED_OUT: the coordinator cannot write its log
    14: Effect.RETRY,  # COORDINATOR_LOAD_IN_PROGRESS
    15: Effect.MOVED,  # COORDINATOR_NOT_AVAILABLE
    16: Effect.MOVED,  # NOT_COORDINATOR
    OLD_GENERATION: Effect.FENCED,
    25: Effect.FENCED,  # UNKNOWN_MEMBER_ID
    69: Effect.FENCED,  # GROUP_ID_NOT_FOUND: the group is gone, and we with it
    82: Effect.FENCED,  # FENCED_INSTANCE_ID
    100: Effect.MISSING,  # UNKNOWN_TOPIC_ID
    103: Effect.MISSING,  # INCONSISTENT_TOPIC_ID
    110: Effect.FENCED,  # FENCED_MEMBER_EPOCH
    113: Effect.STALE,  # STALE_MEMBER_EPOCH
}
_ERRORS: Final[Mapping[int, tuple[type[MultilaneError], str]]] = {
    OLD_GENERATION: (CommitRefused, "the group has moved on without this member; continue from the next assignment"),
    24: (GroupRefused, "group.id must not be empty"),
    25: (CommitRefused, "the group no longer has this member; continue from the next assignment"),
    27: (
        CommitDuringRebalance,
        "the group is rebalancing; poll until it has finished, then commit what is still owned",
    ),
    30: (GroupRefused, "grant READ on the group to this client, or use another group.id"),
    69: (CommitRefused, "the group no longer exists; continue from the next assignment"),
    82: (InstanceFenced, "another process has the same group.instance.id; stop one of the two"),
    110: (CommitRefused, "the group has fenced this member; continue from the next assignment"),
}
_ADVICE: Final[Mapping[int, str]] = {
    12: "the metadata of the offset is longer than the broker's offset.metadata.max.bytes; shorten it",
    28: "the offset and its metadata are larger than the broker accepts; shorten the metadata",
    29: "grant READ on the topic to this client",
}


def judge(
    group: str, partition: TopicPartition, offset: OffsetAndMetadata, code: int | None
) -> tuple[Effect, MultilaneError | None]:
    """Judges the answer for one partition; `code` is None if the answer lacks the partition."""
    what = f"OffsetCommit of {partition} at {offset.offset} in group {group}"
    if code is None:
        return Effect.RETRY, WireError(f"{what} was not answered")
    if code == 0:
        return Effect.DONE, None
    error: MultilaneError = broker_error(code, what, _ADVICE.get(code))
    effect = _EFFECTS.get(code, Effect.RETRY if error.retriable else Effect.REFUSED)
    if code in _ERRORS:
        kind, advice = _ERRORS[code]
        error = kind(f"{error}: {advice}")
    return effect, error
