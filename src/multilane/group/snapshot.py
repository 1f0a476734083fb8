"""The state of a consumer group at one moment, as reported by the brokers.

Thread: none (pure values).

The group is the only source: which engine runs the lanes, and where, does not matter. So a snapshot looks the same for
every engine, and for members of other libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from multilane.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Subject:
    """What is observed: a consumer of a configuration, or a group by name. A group that triggers share has a subject
    for each of them, whose committed offsets are its positions."""

    name: str
    group: str
    cluster: str = ""
    topics: tuple[str, ...] = ()  # empty: the topics that the group itself names
    retry: str | None = None  # which of the topics is for retries
    is_from_beginning: bool = False  # where it starts without a commit; False: at the end, or unknown
    error: str | None = None  # the topic for records whose retries are exhausted
    triggers: tuple[Subject, ...] = ()
    is_trigger: bool = False


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """`partitions` is None if the member is not a consumer: only that member can read its assignment."""

    id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] | None = ()


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """The log from `begin` to `end`; None while it has no leader. `committed` is None if the group has committed
    nothing. `beyond` counts the records settled beyond the committed offset."""

    begin: int | None
    end: int | None
    committed: int | None = None
    beyond: int = 0

    @property
    def settled(self) -> int | None:
        """Rises with every settled record, in any order."""
        return None if self.committed is None else self.committed + self.beyond


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """`at` is monotonic time."""

    subject: Subject
    at: float
    is_there: bool = False  # the coordinator knows the group
    protocol: str = ""  # consumer (KIP-848), classic, ...
    state: str = ""
    members: tuple[MemberSnapshot, ...] = ()
    partitions: Mapping[TopicPartition, PartitionSnapshot] = field(default_factory=dict)
    missing: tuple[str, ...] = ()  # topics that do not exist
    dead: Mapping[TopicPartition, PartitionSnapshot] = field(default_factory=dict)  # of the error topic
    newest: tuple[str, ...] = ()  # heads of errors, of copies that arrived since the previous snapshot
    triggers: tuple[GroupSnapshot, ...] = ()
    absent_since: int | None = None  # of a trigger that does not run, in seconds since 1970
