"""The pump of the process engine: a member of the group that feeds its own lanes.

Thread: loop; one task, the only user of its consumer.

Puts three things together and turns them: what is held, the group's side of it, and the feeding. Owns the consumer.
Never runs a user's function.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.lanes.assignment import Assignment, ReadTopics, Starts
from multilane.lanes.feeding import Feeding
from multilane.lanes.group_membership import Commits, GroupMembership, Timing
from multilane.lanes.log_check import LogCheck
from multilane.lanes.partition_events import PartitionEvents
from multilane.lanes.partition_processor import PartitionProcessor

BuildProcessor = Callable[[Starts], Awaitable[PartitionProcessor]]
_POLL: Final = 0.5


class Pump:
    def __init__(
        self,
        consumer: AsyncConsumer,
        topics: ReadTopics,
        build: BuildProcessor,
        timing: Timing,
        clock: Clock,
        may_commit: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._consumer = consumer
        self._assignment: Assignment[PartitionProcessor] = Assignment(topics, build, self._take_on, LogCheck(consumer))
        self._feeding = Feeding(consumer, self._assignment, timing.drain, clock)
        self._may_commit = may_commit
        self._member = GroupMembership(consumer, self._assignment, timing, clock, self._feeding.catch_up, self._sift)

    def tell(self, events: PartitionEvents) -> None:
        """Who hears of partitions."""
        self._member.events = events

    async def run(self) -> None:
        """Until `stop` is called or something fails; ends with everything settled committed and the group left."""
        self._member.join()
        try:
            while not self._assignment.is_stopping and self._feeding.failure is None:
                await self._feeding.step(min(_POLL, self._member.until_commit))
                await self._member.commit_when_due()
        finally:
            await self._member.leave()
        if self._feeding.failure is not None:
            raise self._feeding.failure

    def stop(self) -> None:
        """From any task of the loop."""
        self._assignment.is_stopping = True
        self._consumer.wakeup()

    async def _sift(self, news: Commits) -> Commits:
        """All or nothing. A ledger is never beyond what was read, so neither are these beyond the end of a log."""
        return news if self._may_commit is None or await self._may_commit() else {}

    def _take_on(self, processor: PartitionProcessor) -> None:
        self._feeding.add(processor)

    @property
    def processors(self) -> tuple[PartitionProcessor, ...]:
        return self._assignment.processors

    @property
    def settled(self) -> int:
        """How many records so far, also of partitions that are others' now."""
        return self._assignment.settled
