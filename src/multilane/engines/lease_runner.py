"""Runs the processors of leased partitions until the lease is over.

Thread: loop; one task, the only user of the consumer meanwhile.

The pump does this for a group member; the lease runner does it for a worker that is in no group. It is given the start
of each partition, and reports progress every second. When the time is up, no new call begins. Calls in flight then have
a moment to end. Processors with longer calls are returned to the caller of `run`, and keep running until they end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.lanes.assignment import Assignment, ReadTopics, Starts
from multilane.lanes.feeding import Fed, Feeding
from multilane.lanes.log_check import LogCheck
from multilane.types import TopicPartition

_POLL: Final = 0.5
_REPORT_EVERY: Final = 1.0


class Leased(Fed, Protocol):
    """The part of a processor that is used here."""

    async def wait_until_idle(self, deadline: float) -> None: ...


L = TypeVar("L", bound=Leased)


class LeaseRunner(Generic[L]):
    def __init__(
        self,
        consumer: AsyncConsumer,
        topics: ReadTopics,
        build: Callable[[Starts], Awaitable[L]],
        report: Callable[[Collection[L]], Awaitable[None]],
        drain: float,
        clock: Clock,
    ) -> None:
        """`report` is called with processors that may have progressed. `drain`: seconds for calls in flight when a log
        continues below what was read."""
        self._consumer = consumer
        self._assignment: Assignment[L] = Assignment(topics, build, self._take_on, LogCheck(consumer))
        self._feeding = Feeding(consumer, self._assignment, drain, clock)
        self._report = report
        self._clock = clock
        self._revocations: deque[tuple[frozenset[TopicPartition], float, asyncio.Future[Collection[L]]]] = deque()
        self._is_revoking = asyncio.Event()  # there are revocations
        self._report_at = clock.monotonic() + _REPORT_EVERY

    async def run(
        self,
        starts: Starts,
        seconds: float,
        patience: float,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> Collection[L]:
        """Returns the processors, which begin no new call. The time to build them does not count. With `ends`, one for
        each partition, nothing beyond them is handled, and the run is over when everything before them is settled. The
        starts identify their logs, so that a log that was cut or recreated since then is noticed."""
        self._feeding.ends = ends or {}
        self._begin_reading(starts)
        try:
            await self._assignment.begin(starts)
            await self._drain_revoked()  # building a processor may take longer than the revocation waits
            until = self._clock.monotonic() + seconds
            while (left := until - self._clock.monotonic()) > 0 and not self._is_over:
                await self._feeding.step(min(left, _POLL, max(0.0, self._report_at - self._clock.monotonic())))
                await self._drain_revoked()
                await self._report_when_due()
            return await self._rest(patience)
        except BaseException:
            await self._assignment.drain(list(self._assignment.partitions), self._clock.monotonic())
            raise
        finally:
            self._consumer.pause(starts)
            for *_, answer in self._revocations:
                answer.set_result(())

    def _begin_reading(self, starts: Starts) -> None:
        self._consumer.assign(starts)
        for partition, start in starts.items():
            if start.offset >= 0:
                self._consumer.seek(partition, start.offset, start.known_epoch, start.topic_id)
            elif partition.topic in self._assignment.topics.from_beginning:
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

    def cut(self, partition: TopicPartition, offset: int) -> None:
        """A reader beside this one has found that the log continues at this offset. From any task of the loop."""
        self._feeding.cut(partition, offset)

    def fail(self, error: BaseException) -> None:
        """A reader beside this one has failed."""
        self._feeding.fail(error)

    async def revoke(self, partitions: frozenset[TopicPartition], seconds: float) -> Collection[L]:
        """From another task: end the processors of these partitions within so many seconds, and return them. Returns
        none when the partitions have none."""
        answer: asyncio.Future[Collection[L]] = asyncio.get_running_loop().create_future()
        self._revocations.append((partitions, self._clock.monotonic() + seconds, answer))
        self._is_revoking.set()
        self._consumer.wakeup()
        return await answer

    # --- steps of the loop -------------------------------------------------------------------------------------------

    def _take_on(self, processor: L) -> None:
        self._feeding.add(processor)

    async def _drain_revoked(self) -> None:
        self._is_revoking.clear()
        while self._revocations:
            partitions, deadline, answer = self._revocations.popleft()
            processors = {processor for p in partitions if (processor := self._assignment.processor(p)) is not None}
            drained = await self._assignment.drain(partitions, deadline)
            self._consumer.pause(drained)
            self._assignment.remove(drained, drained)
            answer.set_result(processors)

    async def _report_when_due(self) -> None:
        now = self._clock.monotonic()
        if now >= self._report_at:
            self._report_at = now + _REPORT_EVERY
            await self._catch_up()
            await self._report(self._assignment.processors)

    async def _catch_up(self) -> None:
        for partition in list(self._assignment.partitions):
            await self._feeding.catch_up(partition)

    async def _rest(self, patience: float) -> Collection[L]:
        deadline = self._clock.monotonic() + patience
        resting = asyncio.gather(*(processor.wait_until_idle(deadline) for processor in self._assignment.processors))
        while not resting.done():  # patience may be long
            revoking = asyncio.create_task(self._is_revoking.wait())
            either: list[asyncio.Future[Any]] = [resting, revoking]
            left = max(0.0, self._report_at - self._clock.monotonic())
            await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            revoking.cancel()
            await self._drain_revoked()
            await self._report_when_due()
        await resting
        await self._catch_up()
        await self._drain_revoked()
        if self._feeding.failure is not None:
            raise self._feeding.failure
        return self._assignment.processors
