"""A partition is paused while its lanes have enough, and read again when they have taken some in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from lane_world import PARTITION, World, block_of, turns
from multilane.clock import ManualClock
from multilane.lanes.assignment import Assignment, ReadTopics, Start, Starts
from multilane.lanes.feeding import Feeding
from multilane.lanes.partition_processor import ENOUGH_ROWS, PartitionProcessor
from multilane.wire.records.block import Block
from multilane.wire.records.record import Record


class Polled:
    """The part of a consumer that feeding uses. It has what a test puts there."""

    def __init__(self) -> None:
        self.blocks: deque[Block] = deque()
        self.paused: frozenset[object] = frozenset()
        self.woken = 0
        self.assignment = frozenset([PARTITION])

    def pause(self, partitions: Iterable[object]) -> None:
        self.paused |= frozenset(partitions)

    def resume(self, partitions: Iterable[object]) -> None:
        self.paused -= frozenset(partitions)

    def wakeup(self) -> None:
        self.woken += 1

    async def poll(self, patience: float) -> list[Block]:
        return [self.blocks.popleft()] if self.blocks and not self.paused else []


async def test_a_partition_whose_lanes_have_enough_is_read_again_when_they_have_taken_some_in():
    gate, got = asyncio.Event(), []

    async def handle(record: Record) -> None:
        await gate.wait()
        got.append(record.offset)

    async def build(starts: Starts) -> PartitionProcessor:
        return world.processor

    async def as_they_are(starts: Starts) -> Starts:
        return starts

    consumer, world = Polled(), World(handle, lanes=2, room=16)
    many = ENOUGH_ROWS + 200
    async with world:
        assignment = Assignment(ReadTopics((PARTITION.topic,)), build, lambda processor: None, as_they_are)
        feeding = Feeding(consumer, assignment, 1.0, ManualClock())
        await assignment.begin({PARTITION: Start(0)})
        feeding.add(world.processor)
        for twice in range(2):
            gate.clear()
            consumer.blocks.append(block_of([f"k{n}" for n in range(many)], twice * many))
            await feeding.step(0.0)
            assert consumer.paused == {PARTITION}
            before = consumer.woken
            await feeding.step(0.0)
            assert consumer.paused == {PARTITION}, "nothing was taken in"
            gate.set()
            while len(got) < (twice + 1) * many:
                await turns(1)
            assert consumer.woken > before
            await feeding.step(0.0)
            assert consumer.paused == frozenset()
        assert sorted(got) == list(range(2 * many))
