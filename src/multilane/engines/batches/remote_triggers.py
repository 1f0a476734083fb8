"""The processors of several triggers of one partition, whose lanes run in Spark workers, as the group member sees them.

Thread: loop (one owner, the lease table's).

Each trigger has a lease of its own; all of them go to the same task, which reads the partition once. Commits the lowest
position of all triggers; see `lanes/joint_commit.py`. Never leases out anything itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from uuid import UUID

from multilane.commit.ledger import CommitPoint
from multilane.engines.batches.remote_processor import RemoteProcessor
from multilane.lanes.joint_commit import JointCommit
from multilane.types import TopicPartition


class RemoteTriggers:
    def __init__(
        self, partition: TopicPartition, processors: Mapping[str, RemoteProcessor], commit: JointCommit
    ) -> None:
        """`processors` by the names of their triggers."""
        self.partition = partition
        self._processors = dict(processors)
        self._commit = commit
        self._owners = {p: each for each in self._processors.values() for p in each.partitions if p != partition}
        for processor in self._processors.values():
            processor.on_log_reset = self._on_log_reset

    @property
    def leased(self) -> tuple[RemoteProcessor, ...]:
        return tuple(self._processors.values())

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset((self.partition, *self._owners))

    @property
    def settled(self) -> int:
        """How many records were settled, those of several triggers several times."""
        return sum(processor.settled for processor in self.leased)

    def commit_point(self, partition: TopicPartition) -> CommitPoint:
        owner = self._owners.get(partition)
        if owner is not None:
            return owner.commit_point(partition)
        return self._commit.point({name: each.commit_point(partition) for name, each in self._processors.items()})

    def note_ids(self, topic_ids: Mapping[str, UUID]) -> frozenset[str]:
        """See `RemoteProcessor.note_ids`."""
        return frozenset[str]().union(*[processor.note_ids(topic_ids) for processor in self.leased])

    def _on_log_reset(self, partition: TopicPartition, offset: int) -> None:
        """The worker of a trigger has found that the log was cut or recreated. That holds for all of them."""
        if partition != self.partition:
            return
        self._commit.forget_from(offset)
        for processor in self.leased:
            processor.forget_id(partition.topic)

    async def drain(self, deadline: float) -> None:
        await asyncio.gather(*(processor.drain(deadline) for processor in self.leased))
