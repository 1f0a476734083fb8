"""What lanes use of a consumer, over logs that a test writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from uuid import uuid4

from lane_world import block_of
from multilane.errors import WakeupError
from multilane.types import OffsetAndEpoch, TopicPartition


class LogConsumer:
    """What a pump uses of a consumer, over logs of keys. A wakeup ends whatever looks for it, as in the real one."""

    def __init__(self, **logs: list[str]) -> None:
        self.logs: dict[TopicPartition, list[str]] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.sought: dict[TopicPartition, tuple] = {}
        self.committed_offsets: dict[TopicPartition, int] = {}
        self.paused: frozenset[TopicPartition] = frozenset()
        self.steps: list[tuple[str, frozenset[TopicPartition]]] = []
        self.most = 1000
        self.epoch = 0
        self.topic_id = uuid4()
        self._woken = False
        self.polls = 0
        self.disturbed: set[str] = set()  # calls during which a lane wakes the consumer up, once each

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.positions)

    def subscribe(self, topics, listener):
        self.listener = listener

    def assign(self, *partitions: TopicPartition) -> None:
        self.steps.append(("on_assigned", frozenset(partitions)))

    def wakeup(self):
        self._woken = True

    def pause(self, partitions: Iterable[TopicPartition]):
        self.paused |= frozenset(partitions)

    def resume(self, partitions: Iterable[TopicPartition]):
        self.paused -= frozenset(partitions)

    def seek(self, partition, offset, leader_epoch=None, topic_id=None):
        self.positions[partition] = offset
        self.sought[partition] = (offset, leader_epoch, topic_id)

    def leader_epoch(self, partition):
        return -1

    def known_topic_id(self, topic):
        return self.topic_id

    def seek_to_beginning(self, partitions):
        self.positions.update(dict.fromkeys(partitions, 0))

    async def partitions_for(self, topic):
        self._disturb("partitions_for")
        return [p for p in self.logs if p.topic == topic]

    async def metadata_limit(self, timeout):
        return None

    def _disturb(self, call: str) -> None:
        if call in self.disturbed:
            self.disturbed.discard(call)
            raise WakeupError("wakeup() was called")

    def _check(self):
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup() was called")

    async def poll(self, timeout):
        self.polls += 1
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.001)
        self._check()
        while self.steps:
            name, partitions = self.steps.pop(0)
            self.positions.update({p: self.positions.get(p, 0) for p in partitions})
            await getattr(self.listener, name)(partitions)
        return [self._read(p) for p in sorted(self.positions) if p not in self.paused and self._waiting(p)]

    def _waiting(self, partition):
        return len(self.logs.get(partition, ())) > self.positions[partition]

    def _read(self, partition):
        start = self.positions[partition]
        keys = self.logs[partition][start : start + self.most]
        self.positions[partition] = start + len(keys)
        return replace(block_of(keys, start, partition.topic), partition=partition.partition)

    async def topic_ids(self, topics):
        self._disturb("topic_ids")
        return {topic: self.topic_id for topic in topics}

    async def log_ends(self, partitions, timeout=None):
        self._disturb("log_ends")
        return {p: OffsetAndEpoch(len(self.logs.get(p, ())), self.epoch) for p in partitions}

    async def epoch_ends(self, epochs):
        """All is of one epoch."""
        self._disturb("epoch_ends")
        ends = await self.log_ends(epochs)
        return {p: ends[p] for p, epoch in epochs.items() if epoch == self.epoch}

    async def beginning_offsets(self, partitions, timeout=None):
        self._check()
        return dict.fromkeys(partitions, 0)

    async def position(self, partition, timeout=None):
        self._check()
        return self.positions[partition]

    async def committed(self, partitions):
        self._disturb("committed")
        self.wakeup()  # a lane ran out of records meanwhile
        return dict.fromkeys(partitions)

    def commit_async(self, offsets, callback):
        self.committed_offsets |= {p: place.offset for p, place in offsets.items()}
        callback(offsets, None)

    async def commit(self, offsets):
        self._disturb("commit")
        self.committed_offsets |= {p: place.offset for p, place in offsets.items()}

    async def close(self, timeout):
        await self.listener.on_revoked(self.assignment)
