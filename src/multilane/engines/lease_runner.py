"""Teams that work off partitions which somebody has lent, for a while.

Thread: loop; one task, the only user of the consumer meanwhile.

What the pump is for a member of a group this is for somebody who is none: where each partition begins is told, and how
far it is by now is told back every second. When the time is up nothing more is begun. What is in work then has a moment
to end; teams with something that takes longer are given to whoever asked for the work, and go on until it has ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.lanes.assignment import Assignment, ReadTopics, Starts
from multilane.lanes.feeding import Feeding
from multilane.lanes.log_check import LogCheck
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.types import TopicPartition

_POLL: Final = 0.5
_TELL_EVERY: Final = 1.0


class LeaseRunner:
    def __init__(
        self,
        consumer: AsyncConsumer,
        topics: ReadTopics,
        build: Callable[[Starts], Awaitable[PartitionProcessor]],
        tell: Callable[[Collection[PartitionProcessor]], Awaitable[None]],
        drain: float,
        clock: Clock,
    ) -> None:
        """`tell` is called with teams that may have got on. `drain`: seconds for what is in work when a log goes on
        below what was read."""
        self._consumer = consumer
        self._assignment: Assignment[PartitionProcessor] = Assignment(topics, build, self._take_on, LogCheck(consumer))
        self._feeding = Feeding(consumer, self._assignment, drain, clock)
        self._tell = tell
        self._clock = clock
        self._wanted_back: deque[
            tuple[frozenset[TopicPartition], float, asyncio.Future[Collection[PartitionProcessor]]]
        ] = deque()
        self._is_asked = asyncio.Event()  # to give something back
        self._tell_at = clock.monotonic() + _TELL_EVERY

    async def run(
        self,
        starts: Starts,
        seconds: float,
        patience: float,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> Collection[PartitionProcessor]:
        """Gives the teams, of which nothing is begun any more. How long they take to be formed does not count. With
        `ends`, one for each partition, nothing beyond them is handled, and it is over when all before them is. What
        the starts know of their logs is how it is noticed that one was cut or made anew since somebody read it."""
        self._feeding.ends = ends or {}
        self._begin_reading(starts)
        try:
            await self._assignment.begin(starts)
            await self._give_back_wanted()  # forming a team may take longer than somebody waits for it
            until = self._clock.monotonic() + seconds
            while (left := until - self._clock.monotonic()) > 0 and not self._is_over:
                await self._feeding.step(min(left, _POLL, max(0.0, self._tell_at - self._clock.monotonic())))
                await self._give_back_wanted()
                await self._tell_when_due()
            return await self._rest(patience)
        except BaseException:
            await self._assignment.drain(list(self._assignment.partitions), self._clock.monotonic())
            raise
        finally:
            self._consumer.pause(starts)
            for *_, answer in self._wanted_back:
                answer.set_result(())

    def _begin_reading(self, starts: Starts) -> None:
        self._consumer.assign(starts)
        for partition, start in starts.items():
            if start.offset >= 0:
                self._consumer.seek(partition, start.offset, start.known_epoch, start.topic_id)
            elif partition.topic in self._assignment.topics.whole:
                self._consumer.seek_to_beginning([partition])
        self._consumer.resume(starts)

    @property
    def _is_over(self) -> bool:
        is_ended = self._assignment.is_stopping or self._feeding.failure is not None
        return is_ended or not self._assignment.partitions or self._feeding.is_complete

    def end(self) -> None:
        """The time is up now; from any task of the loop."""
        self._assignment.is_stopping = True
        self._consumer.wakeup()

    async def give_back(self, partitions: frozenset[TopicPartition], seconds: float) -> Collection[PartitionProcessor]:
        """From another task: the teams of these, ended within so many seconds; none, when there are none."""
        answer: asyncio.Future[Collection[PartitionProcessor]] = asyncio.get_running_loop().create_future()
        self._wanted_back.append((partitions, self._clock.monotonic() + seconds, answer))
        self._is_asked.set()
        self._consumer.wakeup()
        return await answer

    # --- the loop's parts --------------------------------------------------------------------------------------------

    def _take_on(self, processor: PartitionProcessor) -> None:
        self._feeding.add(processor)

    async def _give_back_wanted(self) -> None:
        self._is_asked.clear()
        while self._wanted_back:
            partitions, deadline, answer = self._wanted_back.popleft()
            processors = {processor for p in partitions if (processor := self._assignment.processor(p)) is not None}
            drained = await self._assignment.drain(partitions, deadline)
            self._consumer.pause(drained)
            self._assignment.remove(drained, drained)
            answer.set_result(processors)

    async def _tell_when_due(self) -> None:
        now = self._clock.monotonic()
        if now >= self._tell_at:
            self._tell_at = now + _TELL_EVERY
            await self._catch_up()
            await self._tell(self._assignment.processors)

    async def _catch_up(self) -> None:
        for partition in list(self._assignment.partitions):
            await self._feeding.catch_up(partition)

    async def _rest(self, patience: float) -> Collection[PartitionProcessor]:
        deadline = self._clock.monotonic() + patience
        resting = asyncio.gather(*(processor.rest(deadline) for processor in self._assignment.processors))
        while not resting.done():  # patience may be long
            asked = asyncio.create_task(self._is_asked.wait())
            either: list[asyncio.Future[Any]] = [resting, asked]
            left = max(0.0, self._tell_at - self._clock.monotonic())
            await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            await self._give_back_wanted()
            await self._tell_when_due()
        await resting
        await self._catch_up()
        await self._give_back_wanted()
        if self._feeding.failure is not None:
            raise self._feeding.failure
        return self._assignment.processors
