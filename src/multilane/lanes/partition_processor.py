"""A yard and the crews that work it off: one for each class of lanes.

Thread: loop.

What an engine deals with: blocks go in, places that may be committed come out, and at the end it is drained or dropped.
Owns its yard and crews. Never polls or commits.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from multilane.clock import Clock
from multilane.commit.ledger import CommitPoint
from multilane.lanes.chains import Chains
from multilane.lanes.lane_pool import LanePool
from multilane.lanes.partition_queue import MAIN, PartitionQueue
from multilane.lanes.work import Work
from multilane.types import TopicPartition
from multilane.wire.records.block import Block
from multilane.wire.records.record import Record

ENOUGH_ROWS: Final = 2048  # waiting as columns: until the next block comes
ENOUGH_BYTES: Final = 4 * 1024 * 1024


class PartitionProcessor:
    def __init__(
        self,
        queue: PartitionQueue,
        work: Work,
        lanes: Mapping[str, int],
        clock: Clock,
        on_end: Callable[[Sequence[Record]], object] = lambda given_up: None,
    ) -> None:
        """`lanes`: how many, for each class of the yard. `on_end` is called when it was drained, with
        what was given up in work."""
        self.queue = queue
        self._on_end = on_end
        self._clock = clock
        self._pools = {name: LanePool(queue, queue.chains(name), work, many, clock) for name, many in lanes.items()}
        for pool in self._pools.values():
            pool.peers = [other for other in self._pools.values() if other is not pool]
        self._acknowledging = work.acknowledging
        self._tried = work.tried
        work.on_again = self._take_back
        if self._acknowledging is not None:
            self._acknowledging.on_settled = self.feed

    def __str__(self) -> str:
        return str(self.queue)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self.queue.intakes)

    def listen(
        self, on_hungry: Callable[[PartitionProcessor], object], on_failure: Callable[[BaseException], object]
    ) -> None:
        for pool in self._pools.values():
            pool.on_hungry = lambda: on_hungry(self)
            pool.on_failure = on_failure
        if self._acknowledging is not None:
            self._acknowledging.on_failure = on_failure

    # --- feeding -----------------------------------------------------------------------------------------------------

    def accept(self, block: Block) -> None:
        self.queue.intakes[TopicPartition(block.topic, block.partition)].accept(block)

    def feed(self) -> None:
        for pool in self._pools.values():
            pool.feed()

    def let_go(self, records: Iterable[Record]) -> None:
        """These were in work elsewhere, and are done with: their keys go on."""
        now, done = self._clock.monotonic(), list(records)
        for name, pool in self._pools.items():
            chains = self.queue.chains(name)
            if isinstance(chains, Chains):  # rows are never held: who has to hold a key has chains
                for record in done:
                    chains.let_go(record, now)
                pool.poke()

    def _take_back(self, records: Sequence[Record]) -> None:
        """Rejected by hand after their keys went on, and to be handled again: behind what waits of their keys."""
        now = self._clock.monotonic()
        for name, some in self.queue.routed(records).items():
            chains = self.queue.chains(name)
            if isinstance(chains, Chains):  # rows are not acknowledged by hand
                chains.put_rested(some, now)
                self._pools[name].poke()

    def wants_blocks(self, partition: TopicPartition) -> bool:
        intake = self.queue.intakes[partition]
        return intake.waiting_rows < ENOUGH_ROWS and intake.waiting_bytes < ENOUGH_BYTES

    def flush(self) -> None:
        """No more will come for now: windows that are not full go as they are."""
        for pool in self._pools.values():
            pool.flush()

    def steer(self, *, is_paused: bool, lanes: Mapping[str, int], waiting_per_lane: int) -> None:
        """Nothing is taken in while it is paused; what was before is handled."""
        self.queue.is_paused = is_paused
        for intake in self.queue.intakes.values():
            intake.room = max(1, lanes[MAIN]) * waiting_per_lane
        for name, many in lanes.items():
            self._pools[name].resize(many)
        self.feed()

    # --- what came of it ---------------------------------------------------------------------------------------------

    def place(self, partition: TopicPartition) -> CommitPoint:
        return self.queue.place(partition)

    def whole_place(self, partition: TopicPartition) -> CommitPoint:
        """With all of its runs, however many."""
        return self.queue.intakes[partition].ledger.place(sys.maxsize)

    def is_idle(self, partition: TopicPartition) -> bool:
        """All that came of this partition is settled."""
        intake = self.queue.intakes[partition]
        return not intake.has_blocks and len(intake.ledger) == 0

    @property
    def settled(self) -> int:
        """How many records so far."""
        return self.queue.settled

    @property
    def in_work(self) -> tuple[Record, ...]:
        return tuple(record for pool in self._pools.values() for record in pool.in_work)

    @property
    def unfinished(self) -> tuple[Record, ...]:
        """What is in work, and what waits for nothing but its acknowledgement."""
        acknowledging = self._acknowledging
        pending = () if acknowledging is None else (r for r in acknowledging.records)
        return tuple(dict.fromkeys((*self.in_work, *pending)))

    @property
    def tried(self) -> Mapping[tuple[str, int], Record]:
        """What is to be tried again in its place, as it is now."""
        return self._tried

    async def rest(self, deadline: float) -> None:
        """Begin nothing more; what is in work may end, also after the deadline."""
        await asyncio.gather(*(pool.rest(deadline) for pool in self._pools.values()))

    async def drain(self, deadline: float) -> Sequence[Record]:
        """End what is in work until the deadline, and begin nothing; gives what had to be given up."""
        drained = await asyncio.gather(*(pool.drain(deadline) for pool in self._pools.values()))
        given_up = [record for some in drained for record in some if self._is_open(record)]
        self._on_end(given_up)
        return given_up

    def _is_open(self, record: Record) -> bool:
        return record.offset in self.queue.intakes[TopicPartition(record.topic, record.partition)].ledger
