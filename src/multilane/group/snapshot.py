"""What was seen of a consumer group at one moment, as the brokers told it.

Thread: none (pure values).

The group is the only truth: what runs the lanes, and where, is not asked. So a sight is the same for every engine, and
for members that are not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from multilane.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Subject:
    """Who is looked at: a consumer of a configuration, or a group by its name."""

    name: str
    group: str
    cluster: str = ""
    topics: tuple[str, ...] = ()  # none: those that the group itself names
    retry: str | None = None  # which of the topics is for retries
    is_from_beginning: bool = False  # where it begins without a commit; False: at the end, or nobody knows
    error: str | None = None  # the topic in which records end that are given up


@dataclass(frozen=True, slots=True)
class MemberSight:
    """`partitions` is None for what is no consumer: only it can read its assignment."""

    id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] | None = ()


@dataclass(frozen=True, slots=True)
class PartitionSight:
    """The log from `begin` to `end`; None while it has no leader. `committed` None: the group has committed nothing.
    `beyond` are the records behind the committed offset that are settled already."""

    begin: int | None
    end: int | None
    committed: int | None = None
    beyond: int = 0

    @property
    def settled(self) -> int | None:
        """Rises with every record that is settled, in whichever order that happens."""
        return None if self.committed is None else self.committed + self.beyond


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """`at` is the time of a clock that never goes back."""

    subject: Subject
    at: float
    is_there: bool = False  # the coordinator knows the group
    protocol: str = ""  # consumer (KIP-848), classic, ...
    state: str = ""
    members: tuple[MemberSight, ...] = ()
    partitions: Mapping[TopicPartition, PartitionSight] = field(default_factory=dict)
    missing: tuple[str, ...] = ()  # topics that do not exist
    dead: Mapping[TopicPartition, PartitionSight] = field(default_factory=dict)  # of the error topic
    newest: tuple[str, ...] = ()  # heads of errors, of copies that came since the sight before
