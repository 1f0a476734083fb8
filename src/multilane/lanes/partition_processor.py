"""Processes a partition: a queue of its records, and a pool of lanes for each lane class.

Thread: loop.

This is the interface for engines: blocks go in, commit points come out, and at the end it is drained or dropped. Owns
its queue and pools. Never polls or commits.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from multilane.clock import Clock
from multilane.commit.ledger import CommitPoint
from multilane.lanes.lane_pool import LanePool
from multilane.lanes.partition_queue import MAIN, PartitionQueue
from multilane.lanes.work import Work
from multilane.types import TopicPartition
from multilane.wire.records.block import Block
from multilane.wire.records.record import Record

ENOUGH_ROWS: Final = 2048  # waiting as columns: they last until the next block comes
ENOUGH_BYTES: Final = 4 * 1024 * 1024


class PartitionProcessor:
    def __init__(
        self,
        queue: PartitionQueue,
        work: Work,
        lanes: Mapping[str, int],
        clock: Clock,
        on_end: Callable[[Sequence[Record]], object] = lambda abandoned: None,
    ) -> None:
        """`lanes`: their number, by lane class. `on_end` is called after a drain, with the records that were abandoned
        in flight."""
        self.queue = queue
        self._on_end = on_end
        self._clock = clock
        self._pools = {name: LanePool(queue, queue.chains(name), work, many, clock) for name, many in lanes.items()}
        self._supplies = {name: pool.supply for name, pool in self._pools.items()}
        for supply in self._supplies.values():
            supply.share([other for other in self._supplies.values() if other is not supply])
        self._acknowledging = work.acknowledging
        self._retried = work.settling.retried
        work.settling.on_again = self._put_back
        if self._acknowledging is not None:
            self._acknowledging.on_settled = self.feed

    def __str__(self) -> str:
        return str(self.queue)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.queue.intakes)

    def listen(self, on_wants_blocks: Callable[[], object], on_failure: Callable[[BaseException], object]) -> None:
        for pool in self._pools.values():
            pool.supply.on_wants_blocks = on_wants_blocks
            pool.on_failure = on_failure
        if self._acknowledging is not None:
            self._acknowledging.on_failure = on_failure

    # --- feeding -----------------------------------------------------------------------------------------------------

    def accept(self, block: Block) -> None:
        self.queue.intakes[TopicPartition(block.topic, block.partition)].accept(block)

    def feed(self) -> None:
        for supply in self._supplies.values():
            supply.feed()

    def release_held(self, records: Iterable[Record]) -> None:
        """These were in flight elsewhere and are settled: the next records of their keys may be taken."""
        now, done = self._clock.monotonic(), list(records)
        for name, supply in self._supplies.items():
            chains = self.queue.chains(name)
            for record in done:
                chains.release_held(record, now)
            supply.poke()

    def _put_back(self, records: Sequence[Record]) -> None:
        """Rejected manually after later records of their keys were taken: requeued behind the waiting records."""
        now = self._clock.monotonic()
        for name, some in self.queue.routed(records).items():
            self.queue.chains(name).put_rested(some, now)
            self._supplies[name].poke()

    def end(self, partition: TopicPartition) -> int:
        """The offset after the last block."""
        return self.queue.intakes[partition].end

    def waiting_rows(self, partition: TopicPartition) -> int:
        """The rows of its blocks that are not taken in yet."""
        return self.queue.intakes[partition].waiting_rows

    def has_blocks(self, partition: TopicPartition) -> bool:
        """Whether some of its rows are not taken in yet."""
        return self.queue.intakes[partition].has_blocks

    def pass_to(self, partition: TopicPartition, position: int, leader_epoch: int) -> None:
        """The log has no records for us below this position. Call it only while the partition is idle."""
        self.queue.intakes[partition].pass_to(position, leader_epoch)

    def copy_out(self, partition: TopicPartition) -> None:
        """The waiting records of this partition will wait for a long time."""
        self.queue.copy_out(partition)

    def wants_blocks(self, partition: TopicPartition) -> bool:
        intake = self.queue.intakes[partition]
        return intake.waiting_rows < ENOUGH_ROWS and intake.waiting_bytes < ENOUGH_BYTES

    def flush(self) -> None:
        """No more blocks come for now: handle windows that are not full."""
        for supply in self._supplies.values():
            supply.flush()

    def apply_overrides(self, *, is_paused: bool, lanes: Mapping[str, int], waiting_per_lane: int) -> None:
        """While it is paused no record is taken in; those taken in before are handled."""
        self.queue.is_paused = is_paused
        for intake in self.queue.intakes.values():
            intake.room = max(1, lanes[MAIN]) * waiting_per_lane
        for name, many in lanes.items():
            self._pools[name].resize(many)
        self.feed()

    # --- results -----------------------------------------------------------------------------------------------------

    def commit_point(self, partition: TopicPartition) -> CommitPoint:
        return self.queue.commit_point(partition)

    def full_commit_point(self, partition: TopicPartition) -> CommitPoint:
        """With all of its runs, not only those that fit in a commit."""
        return self.queue.intakes[partition].ledger.commit_point(sys.maxsize)

    def is_idle(self, partition: TopicPartition) -> bool:
        """Whether all records of this partition that came are settled."""
        return self.queue.intakes[partition].is_at_rest

    def frontier(self, partition: TopicPartition) -> int:
        """All records of this partition below it are settled."""
        return self.queue.intakes[partition].frontier()

    def unsettled(self, partition: TopicPartition) -> Sequence[int]:
        """The offsets that were taken in and are not settled, in order."""
        return self.queue.intakes[partition].ledger.unsettled

    def is_unsettled(self, record: Record) -> bool:
        return record.offset in self.queue.intakes[TopicPartition(record.topic, record.partition)].ledger

    @property
    def open_records(self) -> int:
        """How many records came and are not settled."""
        return self.queue.waiting_rows + self.queue.unsettled

    @property
    def settled(self) -> int:
        """How many records were settled so far."""
        return self.queue.settled

    @property
    def received(self) -> int:
        """How many records came, settled or not."""
        return self.queue.received

    @property
    def in_flight(self) -> tuple[Record, ...]:
        return tuple(record for pool in self._pools.values() for record in pool.in_flight)

    @property
    def calls(self) -> int:
        """How many calls of the listener run, or hang."""
        return sum(len(pool.calling) for pool in self._pools.values())

    @property
    def in_flight_or_pending(self) -> tuple[Record, ...]:
        """Records in flight, and records that wait only for their acknowledgement."""
        acknowledging = self._acknowledging
        pending = () if acknowledging is None else (r for r in acknowledging.records)
        return tuple(dict.fromkeys((*self.in_flight, *pending)))

    @property
    def retried(self) -> Mapping[tuple[str, int], Record]:
        """The records that are retried in place, in their current form."""
        return self._retried

    async def wait_until_idle(self, deadline: float) -> None:
        """Begin no more records; those in flight may end, even after the deadline."""
        await asyncio.gather(*(pool.wait_until_idle(deadline) for pool in self._pools.values()))

    async def drain(self, deadline: float) -> Sequence[Record]:
        """Begin no more records, and wait for those in flight until the deadline. Returns the abandoned ones."""
        drained = await asyncio.gather(*(pool.drain(deadline) for pool in self._pools.values()))
        abandoned = [record for some in drained for record in some if self.is_unsettled(record)]
        self._on_end(abandoned)
        return abandoned
