"""Reads partitions for one trigger that cannot keep up with the shared read, or that begins below it.

Thread: loop; one task, the only user of its consumer.

The consumer joins no group, and shares the network thread of the others. It is made when the first partition is
detached. A partition is given back to the shared read when its position has reached the shared one; from then on the
shared read gives the trigger only what it does not have. Owns the consumer. Never commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from multilane.client.async_consumer import AsyncConsumer
from multilane.errors import OperationTimeout, WakeupError
from multilane.lanes.shared_processor import SharedProcessor, Trigger
from multilane.logs import logger
from multilane.types import NO_EPOCH, TopicPartition
from multilane.wire.records.block import Block

log = logger(__name__)

_POLL: Final = 0.5


class DetachedReader:
    """Make it inside the running loop."""

    def __init__(
        self, name: str, connect: Callable[[], AsyncConsumer], on_failure: Callable[[BaseException], object]
    ) -> None:
        self._name = name
        self._connect = connect
        self._on_failure = on_failure
        self._wanted: dict[TopicPartition, tuple[SharedProcessor, Trigger]] = {}
        self._reading: dict[TopicPartition, SharedProcessor] = {}  # which the consumer has now
        self._consumer: AsyncConsumer | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._wanted)

    def begin(self, shared: SharedProcessor, trigger: Trigger) -> None:
        self._wanted[shared.partition] = (shared, trigger)
        if self._task is None and not self._is_closing:
            self._task = asyncio.create_task(self._run(), name=f"multilane detached {self._name}")
        self.wake()

    def end(self, shared: SharedProcessor) -> None:
        wanted = self._wanted.get(shared.partition)
        if wanted is not None and wanted[0] is shared:
            del self._wanted[shared.partition]
            self.wake()

    def wake(self) -> None:
        if self._consumer is not None:
            self._consumer.wakeup()

    async def close(self) -> None:
        self._is_closing = True
        self._wanted.clear()
        self.wake()
        if self._task is not None:
            await asyncio.wait([self._task])

    # --- the task ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        has_failed = False
        try:
            async with self._connect() as consumer:
                self._consumer = consumer
                while not self._is_closing and self._wanted:
                    await self._step(consumer)
        except Exception as error:  # noqa: BLE001 - whatever it is, the group's member ends with it
            has_failed = True
            self._on_failure(error)
        finally:
            self._consumer, self._reading = None, {}
            self._task = None
            if self._wanted and not self._is_closing and not has_failed:  # wanted while the consumer was closed
                self._task = asyncio.create_task(self._run(), name=f"multilane detached {self._name}")

    async def _step(self, consumer: AsyncConsumer) -> None:
        self._assign(consumer)
        self._pause(consumer)
        try:
            blocks = await consumer.poll(_POLL)
        except WakeupError:
            return
        for block in blocks:
            self._deliver(block)
        read = [(s, t) for partition, (s, t) in self._wanted.items() if self._reading.get(partition) is s]
        for _, trigger in read:
            trigger.processor.feed()
        for shared, trigger in read:
            await self._give_back(consumer, shared, trigger)

    def _assign(self, consumer: AsyncConsumer) -> None:
        """Follow what is wanted now."""
        wanted = {partition: shared for partition, (shared, _) in self._wanted.items()}
        if wanted == self._reading:
            return
        consumer.assign(wanted)
        for partition, (shared, trigger) in self._wanted.items():
            if self._reading.get(partition) is not shared:
                epoch = None if trigger.leader_epoch == NO_EPOCH else trigger.leader_epoch
                consumer.seek(partition, trigger.processor.end(partition), epoch)
        self._reading = wanted

    def _pause(self, consumer: AsyncConsumer) -> None:
        paused = consumer.paused
        full = {p for p, (_, trigger) in self._wanted.items() if not trigger.processor.wants_blocks(p)}
        consumer.pause(full - paused)
        consumer.resume(paused - full)

    def _deliver(self, block: Block) -> None:
        partition = TopicPartition(block.topic, block.partition)
        wanted = self._wanted.get(partition)
        if wanted is None or self._reading.get(partition) is not wanted[0]:
            return  # given up meanwhile
        shared, trigger = wanted
        end = trigger.processor.end(partition)
        if block.first_offset < end:
            self._wanted.pop(partition)
            shared.on_cut(partition, block.first_offset)
            return
        if block.log_start_offset > end:
            lost = "%s: %s was to go on at offset %d, but retention has deleted all records below %d"
            log.warning(lost, partition, trigger.name, end, block.log_start_offset)
        shared.give(trigger, block)

    async def _give_back(self, consumer: AsyncConsumer, shared: SharedProcessor, trigger: Trigger) -> None:
        position = await _position(consumer, shared.partition)
        is_wanted = self._wanted.get(shared.partition) == (shared, trigger)
        if position is not None and is_wanted and shared.catches_up(trigger, position):
            del self._wanted[shared.partition]
            self._reading.pop(shared.partition, None)  # if it is detached again, it is sought again


async def _position(consumer: AsyncConsumer, partition: TopicPartition) -> int | None:
    """None if it is not known yet. A lane that has run out of records wakes the consumer: that is meant for a poll."""
    while True:
        try:
            return await consumer.position(partition, 0)
        except WakeupError:
            continue
        except OperationTimeout:
            return None
