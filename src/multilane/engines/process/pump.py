"""The pump of the process engine: a group member that feeds its own lanes.

Thread: loop; one task, the only user of its consumer.

Owns the consumer, and drives three parts: the assignment, the group membership and the feeding of the processors. Never
runs a user's function.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.lanes.assignment import Assignment, ReadTopics, Start, Starts
from multilane.lanes.feeding import Feeding
from multilane.lanes.group_membership import Commits, GroupMembership, Timing
from multilane.lanes.kept_starts import KeptStarts
from multilane.lanes.log_check import LogCheck
from multilane.lanes.partition_events import PartitionHandler
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.shared_processor import SharedProcessor
from multilane.types import TopicPartition

Processor = PartitionProcessor | SharedProcessor
BuildProcessor = Callable[[Starts], Awaitable[Processor]]
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
        self._assignment: Assignment[Processor] = Assignment(topics, build, self._take_on, LogCheck(consumer))
        self._feeding = Feeding(consumer, self._assignment, timing.drain, clock)
        self._may_commit = may_commit
        self._chores: deque[Callable[[], Awaitable[object]]] = deque()
        self._member = GroupMembership(consumer, self._assignment, timing, clock, self._feeding.catch_up, self._allowed)

    def set_events(self, events: PartitionHandler) -> None:
        """Set the handler of partition events."""
        self._member.events = events

    def on_committed(self, call: Callable[[Commits], object]) -> None:
        """Called with each commit that the group has stored."""
        self._member.on_committed = call

    def keep_starts(self, kept: KeptStarts) -> None:
        """Go on where the member before has left off, and leave the same for the next one."""
        self._member.kept = kept

    def between_polls(self, chore: Callable[[], Awaitable[object]]) -> None:
        """Have the task of this pump do this, the only one that may use the consumer. From any task of the loop."""
        self._chores.append(chore)
        self._consumer.wakeup()

    async def run(self) -> None:
        """Run until `stop` is called or an error occurs. Commits everything settled and leaves the group at the end."""
        self._member.join()
        try:
            while not self._assignment.is_stopping and self._feeding.failure is None:
                while self._chores:
                    await self._chores.popleft()()
                await self._feeding.step(min(_POLL, self._member.until_commit))
                await self._member.commit_when_due()
        finally:
            await self._member.leave()
        if self._feeding.failure is not None:
            raise self._feeding.failure

    def cut(self, partition: TopicPartition, offset: int) -> None:
        """A reader beside this one has found that the log continues at this offset. From any task of the loop."""
        self._feeding.cut(partition, offset)

    def fail(self, error: BaseException) -> None:
        """A reader beside this one has failed."""
        self._feeding.fail(error)

    @property
    def has_joined(self) -> bool:
        """Whether it has been a member of its group."""
        return self._member.has_joined

    def stop(self, drain: float | None = None) -> None:
        """Called from any task of the loop. `drain`: how many seconds records in flight have, if not as configured."""
        if drain is not None:
            self._member.drain = drain
        self._assignment.is_stopping = True
        self._consumer.wakeup()

    async def _allowed(self, commits: Commits) -> Commits:
        """All commits or none. A ledger is never ahead of what was read, so no commit is beyond the end of a log."""
        return commits if self._may_commit is None or await self._may_commit() else {}

    def start_of(self, processor: Processor, partition: TopicPartition) -> Start:
        """Where the next processor of this partition would begin."""
        return self._assignment.start_of(processor, partition)

    def _take_on(self, processor: Processor) -> None:
        self._feeding.add(processor)

    @property
    def processors(self) -> tuple[Processor, ...]:
        return self._assignment.processors

    @property
    def settled(self) -> int:
        """Number of settled records, including those of revoked partitions."""
        return self._assignment.settled
