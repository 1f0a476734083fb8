"""Gives the blocks of one partition to the processors of several triggers.

Thread: loop; one owner.

Every trigger gets the same columns, from its own position on. A trigger that cannot keep up is detached: the shared
read no longer feeds it, and a reader of its own does, until it has caught up. So a full trigger never pauses the
partition for the others. Owns who is attached. Commits the lowest position of all triggers; see `joint_commit.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from multilane.clock import Clock
from multilane.commit.ledger import CommitPoint
from multilane.commit.trigger_positions import Position
from multilane.lanes.at_rest import AtRest
from multilane.lanes.intake import Intake, Waiting
from multilane.lanes.joint_commit import JointCommit
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.shared_blocks import made_once
from multilane.logs import logger
from multilane.types import NO_EPOCH, TopicPartition
from multilane.wire.records.block import Block
from multilane.wire.records.record import Record

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class DetachLimits:
    """How far a trigger may fall behind the shared read of a partition before it reads on its own."""

    records: int
    seconds: float
    bytes: int


class DetachedReads(Protocol):
    """Reads partitions for one trigger alone."""

    def begin(self, shared: SharedProcessor, trigger: Trigger) -> None: ...

    def end(self, shared: SharedProcessor) -> None: ...

    def wake(self) -> None: ...


@dataclass(slots=True, eq=False)
class Trigger:
    """One trigger of a partition. `full_since` is when it last wanted no more blocks; None while it wants some."""

    name: str
    processor: PartitionProcessor
    limits: DetachLimits
    reads: DetachedReads
    leader_epoch: int  # of the last record that it got
    end_epoch: int = NO_EPOCH  # the newest that was read when it got to where it begins, as far as its position says
    is_detached: bool = False
    full_since: float | None = None
    drained: asyncio.Future[Sequence[Record]] | None = None  # it begins no more records
    intake: Intake = field(init=False)  # of the shared partition


class SharedProcessor:
    def __init__(
        self,
        partition: TopicPartition,
        triggers: list[Trigger],
        start: CommitPoint,
        absent: Mapping[str, Position],
        clock: Clock,
        absent_after: float,
    ) -> None:
        """`start` is the group's own position. Triggers that begin below it read on their own until they reach it."""
        self.partition = partition
        for trigger in triggers:
            trigger.intake = trigger.processor.queue.intakes[partition]
        self.triggers = {trigger.name: trigger for trigger in triggers}
        self._commit = JointCommit(partition, start, absent, clock, absent_after)
        self._clock = clock
        self._is_cut = False  # its feeder knows, and builds another one
        self._owners = {p: t for t in triggers for p in t.processor.partitions if p != partition}
        ahead = [t.processor.end(partition) for t in triggers]
        self._end = min((end for end in ahead if end >= start.offset), default=start.offset)
        self.on_cut: Callable[[TopicPartition, int], object] = lambda partition, offset: None
        self._on_wants_blocks: Callable[[], object] = lambda: None
        self._last: tuple[object, CommitPoint] | None = None
        self._at_rest = AtRest(self._intakes, self._unless_settled)
        self._on_failure: Callable[[BaseException], object] = lambda error: None
        self._settled_before = 0  # by triggers that have left

    def __str__(self) -> str:
        return str(self.partition)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset((self.partition, *self._owners))

    @property
    def settled(self) -> int:
        """How many records were settled, those of several triggers several times."""
        return self._settled_before + sum(trigger.processor.settled for trigger in self.triggers.values())

    def listen(self, on_wants_blocks: Callable[[], object], on_failure: Callable[[BaseException], object]) -> None:
        self._on_wants_blocks, self._on_failure = on_wants_blocks, on_failure
        for trigger in self.triggers.values():
            self._listen_to(trigger)

    def _listen_to(self, trigger: Trigger) -> None:
        trigger.processor.listen(partial(self._note_wants_blocks, trigger), self._on_failure)
        if trigger.processor.end(self.partition) < self._end:
            self._detach(trigger, "it begins below the shared read")

    # --- who comes and goes ------------------------------------------------------------------------------------------

    def attach(self, trigger: Trigger) -> None:
        """Another trigger takes part from now on, from its own position."""
        self._forget_point()
        trigger.intake = trigger.processor.queue.intakes[self.partition]
        self.triggers[trigger.name] = trigger
        self._commit.drop(trigger.name)
        self._owners |= {p: trigger for p in trigger.processor.partitions if p != self.partition}
        self._listen_to(trigger)
        self._on_wants_blocks()

    async def release(self, name: str, deadline: float) -> None:
        """A trigger leaves for good: it begins no more records, those in flight end, and commits wait for it no longer.
        The others go on meanwhile."""
        trigger = self.triggers.get(name)
        if trigger is None:
            self._commit.drop(name)
            return
        trigger.reads.end(self)
        await self._drained(trigger, deadline)
        if self.triggers.get(name) is trigger:
            self.commit_point(self.partition)  # the last one leaves its position to the group
            self._settled_before += trigger.processor.settled
            del self.triggers[name]
            self._forget_point()
            self._on_wants_blocks()

    def _note_wants_blocks(self, trigger: Trigger) -> None:
        if trigger.is_detached:
            trigger.reads.wake()
        self._on_wants_blocks()

    # --- feeding -----------------------------------------------------------------------------------------------------

    def accept(self, block: Block) -> None:
        partition = TopicPartition(block.topic, block.partition)
        owner = self._owners.get(partition)
        if owner is not None:
            owner.processor.accept(block)
            return
        self._end = block.next_offset
        attached = self._sharing()
        if len(attached) > 1:
            block = made_once(block)
        if block.made is None or not len(block):
            for trigger in attached:
                self.give(trigger, block)
            return
        first, waiting = block.first_offset, Waiting(block, block.made.row_bytes, len(block))
        for trigger in attached:
            if 0 <= trigger.intake.end <= first:  # as nearly always: the same for all of them
                trigger.intake.put(waiting)
                trigger.leader_epoch = block.leader_epoch
            else:
                self.give(trigger, block)

    def give(self, trigger: Trigger, block: Block) -> None:
        """The records of this block that the trigger does not have yet."""
        end = trigger.processor.end(self.partition)
        if end < 0:  # not known until now: it begins here, whether it takes these records in or not
            trigger.processor.pass_to(self.partition, block.first_offset, NO_EPOCH)
        if block.first_offset < end:
            if self._is_of_another_log(trigger, block, end):
                return
            block = block.slice(int(block.offsets.searchsorted(end)))
        if len(block) and block.next_offset > end:
            trigger.processor.accept(block)
            trigger.leader_epoch = block.leader_epoch

    def _is_of_another_log(self, trigger: Trigger, block: Block, end: int) -> bool:
        """Whether the records below `end`, which this trigger had, were others: the log was cut meanwhile, and these
        have a newer epoch than any record that was read then. They are new to it."""
        known = max(trigger.end_epoch, trigger.leader_epoch)
        last = int(block.offsets.searchsorted(end)) - 1
        if self._is_cut or last < 0 or not NO_EPOCH < known < block.epoch_at(last):
            return self._is_cut
        first = next(row for row in range(last + 1) if block.epoch_at(row) > known)
        self._is_cut = True
        self.on_cut(self.partition, int(block.offsets[first]))
        return True

    def feed(self) -> None:
        for trigger in self.triggers.values():
            if trigger.drained is None:
                trigger.processor.feed()
        self._detach_slow()

    def _sharing(self) -> list[Trigger]:
        """The triggers that the shared read feeds."""
        return [t for t in self.triggers.values() if not t.is_detached and t.drained is None]

    def end(self, partition: TopicPartition) -> int:
        owner = self._owners.get(partition)
        return self._end if owner is None else owner.processor.end(partition)

    def wants_blocks(self, partition: TopicPartition) -> bool:
        owner = self._owners.get(partition)
        if owner is not None:
            return owner.processor.wants_blocks(partition)
        return any(trigger.processor.wants_blocks(partition) for trigger in self._sharing())

    def copy_out(self, partition: TopicPartition) -> None:
        owner = self._owners.get(partition)
        for trigger in self.triggers.values() if owner is None else (owner,):
            trigger.processor.copy_out(partition)

    def is_idle(self, partition: TopicPartition) -> bool:
        owner = self._owners.get(partition)
        if owner is not None:
            return owner.processor.is_idle(partition)
        return all(not t.is_detached and t.processor.is_idle(partition) for t in self.triggers.values())

    def pass_to(self, partition: TopicPartition, position: int, leader_epoch: int) -> None:
        owner = self._owners.get(partition)
        for trigger in self.triggers.values() if owner is None else (owner,):
            trigger.processor.pass_to(partition, position, leader_epoch)
        if owner is None:
            self._end = max(self._end, position)

    # --- detached triggers -------------------------------------------------------------------------------------------

    def _detach_slow(self) -> None:
        """Only while others keep up: when nobody does, nobody waits for the slow one."""
        now = self._clock.monotonic()
        attached = self._sharing()
        if not attached:
            return
        if not any(t.intake.waiting_rows or t.full_since is not None for t in attached):
            return  # as nearly always
        rows, size = (min(t.intake.waiting_rows for t in attached), min(t.intake.waiting_bytes for t in attached))
        slow = [(trigger, why) for trigger in attached if (why := self._too_far_behind(trigger, now, rows, size))]
        if len(slow) < len(attached):
            for trigger, why in slow:
                self._detach(trigger, why)

    def _too_far_behind(self, trigger: Trigger, now: float, rows: int, size: float) -> str:
        """`rows` and `size` wait for the quickest trigger: a block may have more than the limits, for all of them."""
        if trigger.processor.wants_blocks(self.partition):
            trigger.full_since = None
        elif trigger.full_since is None:
            trigger.full_since = now
        limits, intake = trigger.limits, trigger.intake
        if intake.waiting_rows - rows > limits.records:
            return f"more than {limits.records} records wait for it"
        if intake.waiting_bytes - size > limits.bytes:
            return f"more than {limits.bytes} bytes wait for it"
        if trigger.full_since is not None and now - trigger.full_since > limits.seconds:
            return f"it has not kept up for {limits.seconds:g} s"
        return ""

    def _keeps_up(self, trigger: Trigger) -> bool:
        """Half of its limits are left, so that it is not detached again at once."""
        limits, intake = trigger.limits, trigger.intake
        is_near = 2 * intake.waiting_rows <= limits.records and 2 * intake.waiting_bytes <= limits.bytes
        return is_near and trigger.processor.wants_blocks(self.partition)

    def _detach(self, trigger: Trigger, why: str) -> None:
        trigger.is_detached, trigger.full_since = True, None
        trigger.processor.copy_out(self.partition)
        log.info("%s: %s reads on its own from offset %d: %s", self, trigger.name, self._next_of(trigger), why)
        trigger.reads.begin(self, trigger)

    def _next_of(self, trigger: Trigger) -> int:
        return trigger.processor.end(self.partition)

    def catches_up(self, trigger: Trigger, position: int) -> bool:
        """A detached trigger was read up to here. If that is where the shared read is, and it keeps up, it is attached
        again."""
        if position < self._end or not self._keeps_up(trigger):
            return False
        trigger.is_detached = False
        log.info("%s: %s has caught up at offset %d and shares the read again", self, trigger.name, position)
        self._on_wants_blocks()
        return True

    # --- results -----------------------------------------------------------------------------------------------------

    def commit_point(self, partition: TopicPartition) -> CommitPoint:
        owner = self._owners.get(partition)
        if owner is not None:
            return owner.processor.commit_point(partition)
        if self._commit.absent:  # the time decides too
            return self._point()
        return self._at_rest.value

    def _intakes(self) -> list[Intake]:
        return [trigger.intake for trigger in self.triggers.values()]

    def _unless_settled(self) -> CommitPoint:
        """Some records may be open for a long time, and nothing moves meanwhile."""
        settled = [intake.ledger.mark for intake in self._intakes()]
        if self._last is None or self._last[0] != settled:
            self._last = settled, self._point()
        return self._last[1]

    def _forget_point(self) -> None:
        """It is of other triggers now."""
        self._last = None
        self._at_rest.clear()

    def _point(self) -> CommitPoint:
        return self._commit.point({n: t.processor.commit_point(self.partition) for n, t in self.triggers.items()})

    @property
    def absent(self) -> Mapping[str, Position]:
        """Triggers that the commit names and that are not here."""
        return self._commit.absent

    async def wait_until_idle(self, deadline: float) -> None:
        """Begin no more records; those in flight may end, even after the deadline. No trigger reads on its own."""
        self._end_detached()
        await asyncio.gather(*(trigger.processor.wait_until_idle(deadline) for trigger in self.triggers.values()))

    async def drain(self, deadline: float) -> object:
        self._end_detached()
        return await asyncio.gather(*(self._drained(trigger, deadline) for trigger in self.triggers.values()))

    def _end_detached(self) -> None:
        for trigger in self.triggers.values():
            trigger.reads.end(self)

    async def _drained(self, trigger: Trigger, deadline: float) -> object:
        """Once for each, also if it leaves while all of them end."""
        if trigger.drained is None:
            trigger.drained = asyncio.ensure_future(trigger.processor.drain(deadline))
        return await asyncio.shield(trigger.drained)
