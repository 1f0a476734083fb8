"""A partition lease that a worker holds, or whose calls it carries over: its processor, and how far that is.

Thread: loop (one owner, the worker's application).

Triggers that share a partition have a lease each, and one read: `joint_starts` says where that begins. Owns no
connection, and sends nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from multilane.commit.trigger_positions import Position
from multilane.engines.batches.messages import HeldRecord, LogReset, PartitionLease
from multilane.lanes.assignment import Start, Starts, start_of
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.shared_processor import SharedProcessor
from multilane.runtime.group_lanes import GroupLanes
from multilane.runtime.handover import Handover
from multilane.runtime.lane_factory import LaneFactory
from multilane.runtime.shared_lanes import SharedLanes
from multilane.types import NO_EPOCH, TopicPartition
from multilane.wire.records.record import Record


@dataclass(slots=True, eq=False)
class ActiveLease:
    lease: PartitionLease  # as it was granted
    processor: PartitionProcessor | None = None
    fed: PartitionProcessor | SharedProcessor | None = None  # what is fed for it: its own, or that of several triggers
    settled_before: int = 0
    log_resets: dict[TopicPartition, LogReset] = field(default_factory=dict)
    counted: int = 0  # settled records that the observer has counted
    reported: PartitionLease | None = None  # the last report to the coordinator, if any
    revoke_deadline: float | None = None

    @property
    def settled(self) -> int:
        return self.settled_before + (0 if self.processor is None else self.processor.settled)

    async def build(self, factory: LaneFactory, starts: Starts) -> PartitionProcessor:
        self._note_starts(starts)
        processor = await factory.build(starts, _handover(self.lease))
        self.settled_before = self.settled  # by a processor whose log was reset
        self.processor = processor
        return processor

    def _note_starts(self, starts: Starts) -> None:
        """A log may continue below what was read, or may not be the one of the lease."""
        granted = self.lease.starts
        for partition, start in starts.items():
            expected = granted[partition] if self.processor is None else start_of(self.processor, partition)
            if (start.offset, start.runs) != (expected.offset, expected.runs):
                times, offset = self.log_resets.get(partition, LogReset(0, start.offset))
                self.log_resets[partition] = LogReset(times + 1, min(offset, start.offset))
                self.lease = self.lease.before(partition, start.offset)

    @property
    def as_known(self) -> PartitionLease:
        """As the coordinator knows it. Records held by other workers are reported by those."""
        return self.reported or replace(self.lease, held=())

    @property
    def progress(self) -> PartitionLease:
        """The lease with its current progress."""
        processor = self.processor
        if processor is None:
            return self.as_known
        points = {p: processor.full_commit_point(p) for p in self.lease.points}
        resets = dict(self.log_resets)
        return replace(self.lease, points=points, held=(), retries=(), settled=self.settled, log_resets=resets)

    def release(self, held: Iterable[HeldRecord]) -> None:
        """Records that other workers held are settled: their keys resume."""
        if self.processor is not None:
            blocking = {record for record in self.lease.held if record.blocks_key}
            self.processor.release_held([_record(record) for record in held if record in blocking])


async def build_for(
    leases: Collection[ActiveLease], lanes: GroupLanes, starts: Starts
) -> PartitionProcessor | SharedProcessor:
    """The processor of these partitions, which these leases are for: one, or those of several triggers."""
    builders = {one.lease.consumer: partial(one.build, lanes.consumers[one.lease.consumer]) for one in leases}
    if isinstance(lanes, SharedLanes):
        fed = await lanes.build(starts, builders)
    else:
        [build] = builders.values()
        fed = await build(starts)
    for one in leases:
        one.fed = fed
    return fed


def shared_reading(lanes: GroupLanes) -> tuple[frozenset[str], dict[str, int]]:
    """The topics that triggers share, and by trigger how many records it may be behind the others."""
    if not isinstance(lanes, SharedLanes):
        return frozenset(), {}
    configs = [factory.config for factory in lanes.consumers.values()]
    return frozenset(c.topic for c in configs), {c.name: c.detach_after.records for c in configs}


def joint_starts(leases: Sequence[PartitionLease], shared: Collection[str], max_behind: Mapping[str, int]) -> Starts:
    """Where reading begins. Triggers share the partitions of the topics in `shared`: there it is the lowest position of
    those that are within `max_behind` records (by trigger) of the furthest; the others read on their own until they
    have caught up."""
    found: dict[TopicPartition, dict[str, Start]] = {}
    for lease in leases:
        for partition, start in lease.starts.items():
            found.setdefault(partition, {})[lease.consumer] = start
    return {p: _joint(own, max_behind) if p.topic in shared else next(iter(own.values())) for p, own in found.items()}


def _joint(starts: Mapping[str, Start], max_behind: Mapping[str, int]) -> Start:
    known = {name: start for name, start in starts.items() if start.offset >= 0}
    if not known:
        return next(iter(starts.values()))
    furthest = max(start.offset for start in known.values())
    near = [start for name, start in known.items() if furthest - start.offset <= max_behind[name]]
    lowest = min(start.offset for start in near)
    ids = {start.topic_id for start in known.values()}
    claiming = max(known.values(), key=lambda start: start.claimed_end)  # in one log its epoch is the newest
    newest = max(start.end_epoch for start in known.values())
    return Start(
        lowest,
        end_epoch=newest if claiming.end_epoch == NO_EPOCH else claiming.end_epoch,
        leader_epoch=max(start.leader_epoch for start in near if start.offset == lowest),
        topic_id=ids.pop() if len(ids) == 1 else None,
        positions={name: Position(start.offset, start.runs) for name, start in known.items()},
    )


def partition_of(record: Record) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


def held_record(record: Record, *, blocks_key: bool) -> HeldRecord:
    return HeldRecord(partition_of(record), record.offset, record.key, blocks_key)


def _record(held: HeldRecord) -> Record:
    return Record(*held.partition, held.offset, 0, 0, held.key, None)


def _handover(lease: PartitionLease) -> Handover:
    keys = tuple(record.key for record in lease.held if record.blocks_key)
    return Handover(keys, {(record.topic, record.offset): record for record in lease.retries})
