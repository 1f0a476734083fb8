"""What a coordinator's answer to a commit means, code by code.

Thread: none (pure).

One function judges one partition's answer: what to do next, and with which error whoever waits is told of it. Knows no
state; what depends on it (has the member moved on, how long has a topic been missing) is for the manager.
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
    AGAIN = "again"  # after a while, to the same coordinator
    MOVED = "moved"  # after a while, to whoever coordinates the group then
    MISSING = "missing"  # the topic is not known there: for some seconds it may be about to be
    STALE = "stale"  # with a newer member epoch
    REFUSED = "refused"
    FENCED = "fenced"  # refused, and we are no longer a member


_EFFECTS: Final[Mapping[int, Effect]] = {
    0: Effect.DONE,
    3: Effect.MISSING,  # UNKNOWN_TOPIC_OR_PARTITION
    7: Effect.MOVED,  # REQUEST_TIMED_OUT: the coordinator cannot write its log
    14: Effect.AGAIN,  # COORDINATOR_LOAD_IN_PROGRESS
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
    OLD_GENERATION: (CommitRefused, "the group has gone on without this member; read again from what is assigned next"),
    24: (GroupRefused, "group.id must not be empty"),
    25: (CommitRefused, "the group no longer has this member; read again from what is assigned next"),
    27: (CommitDuringRebalance, "the group is rebalancing; poll until that is over and commit what is still owned"),
    30: (GroupRefused, "grant READ on the group to this client, or use another group.id"),
    69: (CommitRefused, "the group does not exist any more; read again from what is assigned next"),
    82: (InstanceFenced, "another process has the same group.instance.id; stop one of the two"),
    110: (CommitRefused, "the group has fenced this member; read again from what is assigned next"),
}
_ADVICE: Final[Mapping[int, str]] = {
    12: "the text beside the offset is longer than the broker's offset.metadata.max.bytes; make it shorter",
    28: "the offset and its text are larger than the broker takes; make the text shorter",
    29: "grant READ on the topic to this client",
}


def judge(
    group: str, partition: TopicPartition, offset: OffsetAndMetadata, code: int | None
) -> tuple[Effect, MultilaneError | None]:
    """What the answer to one partition means; the code is None where it was left out of the answer."""
    what = f"OffsetCommit of {partition} at {offset.offset} in group {group}"
    if code is None:
        return Effect.AGAIN, WireError(f"{what} was not answered")
    if code == 0:
        return Effect.DONE, None
    error: MultilaneError = broker_error(code, what, _ADVICE.get(code))
    effect = _EFFECTS.get(code, Effect.AGAIN if error.retriable else Effect.REFUSED)
    if code in _ERRORS:
        kind, advice = _ERRORS[code]
        error = kind(f"{error}: {advice}")
    return effect, error
