"""One partition's position in its log, as the network thread sees it.

Thread: none (pure); every cursor belongs to the network thread.

A cursor knows where the next fetch starts and which phase it is in. The phases and the moves between them are the table
below; `to()` is the only way to change phase and refuses what the table does not have.

    AWAIT_COMMITTED   waits for the group's committed offset (OffsetFetch)
    AWAIT_RESET       the offset is unknown: waits for ListOffsets
    AWAIT_VALIDATION  the leader changed: OffsetForLeaderEpoch shows whether the records read are still in the log
    FETCHING          may be fetched
    STOPPED           the partition failed; the application got the error and must seek or reassign

A cursor has two counters against stale answers. `generation` is the application's: it rises with each assign and seek.
`refetch_epoch` is the buffer's: it rises when fetched records are dropped (a corrupt batch, an eviction), and the
cursor adopts it when it moves back. A fetched block belongs to the partition only while both still match.

The fetching does not iterate over all cursors: a cursor that changes (phase, position, paused or resumed, removed from
its table) calls `on_change`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from multilane.types import NO_EPOCH, LeaderEpoch, NodeId, Offset, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID


class Phase(enum.Enum):
    AWAIT_COMMITTED = "await committed"
    AWAIT_RESET = "await reset"
    AWAIT_VALIDATION = "await validation"
    FETCHING = "fetching"
    STOPPED = "stopped"


TRANSITIONS: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.AWAIT_COMMITTED: frozenset({Phase.FETCHING, Phase.AWAIT_RESET, Phase.STOPPED}),
    Phase.AWAIT_RESET: frozenset({Phase.FETCHING, Phase.STOPPED}),
    Phase.AWAIT_VALIDATION: frozenset({Phase.FETCHING, Phase.AWAIT_RESET, Phase.STOPPED}),
    Phase.FETCHING: frozenset({Phase.AWAIT_VALIDATION, Phase.AWAIT_RESET, Phase.STOPPED}),
    Phase.STOPPED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class At:
    """Start at this offset; `epoch` is that of the record before it, and `topic_id` that of the log, where known."""

    offset: Offset
    epoch: LeaderEpoch = NO_EPOCH
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Lookup:
    """Start where ListOffsets says: at the first record of that time (in ms) or later, or at EARLIEST or LATEST.
    `reason` is for the log."""

    timestamp: int
    reason: str


@dataclass(frozen=True, slots=True)
class AtCommitted:
    """Start at the group's committed offset; without one, where `auto.offset.reset` says."""


StartPosition = At | Lookup | AtCommitted


def _ignore(_cursor: Cursor) -> None:
    return None


class Cursor:
    __slots__ = (
        "_paused",
        "epoch",
        "former_topic_ids",
        "generation",
        "in_flight",
        "is_missing",
        "leader_epoch",
        "lookup",
        "not_before",
        "offset",
        "on_change",
        "partition",
        "phase",
        "refetch_at",
        "refetch_epoch",
        "refetches",
        "replica",
        "replica_until",
        "resets",
        "retries",
        "served",
        "topic_id",
    )

    def __init__(self, partition: TopicPartition, generation: int, start: StartPosition) -> None:
        self.partition = partition
        self.generation = generation
        self.refetch_epoch = 0
        self.on_change: Callable[[Cursor], None] = _ignore
        self._paused = False
        self.in_flight = False
        self.topic_id: UUID | None = None
        self.leader_epoch = NO_EPOCH  # the epoch in which our position was last known to be valid
        self.refetches = 0  # of the same corrupt batch
        self.refetch_at = Offset(-1)  # where that batch is
        self.former_topic_ids: frozenset[UUID | None] = frozenset()
        self.is_missing = False  # the topic exists, the partition does not
        self.served = 0  # the turn in which it was last requested
        self.retries = 0  # of the last failure
        self.resets = 0  # lookups of its position since it last advanced
        self.not_before = 0.0
        self.replica: NodeId | None = None  # KIP-392: the replica that the leader prefers for us
        self.replica_until = 0.0
        self.offset = Offset(-1)
        self.epoch = NO_EPOCH  # of the last record before `offset`
        self.lookup: Lookup | None = None
        if isinstance(start, At):
            self.offset, self.epoch, self.phase = start.offset, start.epoch, Phase.FETCHING
            self.topic_id = start.topic_id
        elif isinstance(start, AtCommitted):
            self.phase = Phase.AWAIT_COMMITTED
        else:
            self.lookup, self.phase = start, Phase.AWAIT_RESET

    def to(self, phase: Phase) -> None:
        if phase not in TRANSITIONS[self.phase]:
            raise AssertionError(f"{self.partition}: no transition from {self.phase.value} to {phase.value}")
        self.phase = phase
        self.on_change(self)

    @property
    def paused(self) -> bool:
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused = paused
        self.on_change(self)

    def positioned(self, at: At) -> None:
        """A lookup or validation was answered: fetch from here."""
        self.offset, self.epoch, self.lookup = at.offset, at.epoch, None
        self.to(Phase.FETCHING)

    def lost(self, lookup: Lookup) -> None:
        """The offset is no longer usable; look up another. Records fetched so far stay valid."""
        self.lookup = lookup
        self.replica = None
        self.to(Phase.AWAIT_RESET)

    def advanced(self, offset: Offset, epoch: LeaderEpoch) -> None:
        self.offset = offset
        if epoch != NO_EPOCH:
            self.epoch = epoch
        self.retries = self.resets = 0

    def rewound(self, offset: Offset, refetch_epoch: int) -> None:
        """Fetch from here again, in a new refetch epoch."""
        self.offset = offset
        self.refetch_epoch = refetch_epoch
        self.replica = None  # the replica has broken bytes: the next fetch goes to the leader
        self.on_change(self)

    def stop(self) -> None:
        self.to(Phase.STOPPED)


class CursorTable:
    """The cursors of one consumer, by partition."""

    def __init__(self, on_change: Callable[[Cursor], None] = _ignore) -> None:
        self._on_change = on_change
        self._cursors: dict[TopicPartition, Cursor] = {}

    def __iter__(self) -> Iterator[Cursor]:
        return iter(self._cursors.values())

    def __len__(self) -> int:
        return len(self._cursors)

    def get(self, partition: TopicPartition) -> Cursor | None:
        return self._cursors.get(partition)

    def current(self, partition: TopicPartition, generation: int) -> Cursor | None:
        """The cursor, unless the application has moved on since `generation`."""
        cursor = self._cursors.get(partition)
        return cursor if cursor is not None and cursor.generation == generation else None

    def put(self, cursor: Cursor) -> None:
        replaced = self._cursors.get(cursor.partition)
        self._cursors[cursor.partition] = cursor
        cursor.on_change = self._on_change
        if replaced is not None:
            self._on_change(replaced)
        self._on_change(cursor)

    def keep_only(self, partitions: Mapping[TopicPartition, int]) -> list[Cursor]:
        """Removes cursors that are no longer assigned, or assigned again. Returns them."""
        gone = [c for p, c in self._cursors.items() if partitions.get(p) != c.generation]
        for cursor in gone:
            del self._cursors[cursor.partition]
            self._on_change(cursor)
        return gone

    def topics(self) -> frozenset[str]:
        return frozenset(p.topic for p in self._cursors)
