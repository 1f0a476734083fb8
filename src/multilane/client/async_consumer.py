"""The consumer for asyncio: the same as `Consumer`, awaiting where that one blocks.

Thread: the event loop's, one task at a time; `wakeup` from any.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TypeVar

from multilane.client.admin.topics import partitions_of, topic_metadata_call
from multilane.client.blocks import Blocks
from multilane.client.fetch.offsets import Found
from multilane.client.front import Front, at_time, beginning, checked_topic, end, only_offsets
from multilane.client.sharing import THREADS
from multilane.client.steering import Steering
from multilane.clock import Clock, SystemClock
from multilane.config.consumer import parse_consumer
from multilane.errors import OperationTimeout
from multilane.hooks import Observer
from multilane.types import Offset, OffsetAndTimestamp, TopicPartition
from multilane.wire.compose import MAX_TIMESTAMP

log = logging.getLogger(__name__)

T = TypeVar("T")


class LoopSignal:
    """A bell that other threads ring and the loop hears. Rung once, it stays quiet until cleared: the loop is not
    flooded with callbacks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()
        self._rung = False

    def set(self) -> None:
        if self._rung:
            return
        self._rung = True
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            return  # the loop is closed: nobody listens any more

    def clear(self) -> None:
        self._rung = False
        self._event.clear()

    async def wait(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                return await self._event.wait()
        except TimeoutError:
            return False


class AsyncConsumer(Steering):
    """Reads partitions into columns; make it inside a running event loop. See `Consumer` for the properties."""

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        /,
        *,
        clock: Clock | None = None,
        observer: Observer | None = None,
        **more: object,
    ) -> None:
        config = parse_consumer({**(properties or {}), **more})
        for warning in config.warnings:
            log.warning("%s", warning)
        if config.group_id is not None:
            log.warning("group.id has no effect yet: partitions are assigned by hand, offsets are not committed")
        self._clock = clock or SystemClock()
        self._ring = LoopSignal(asyncio.get_running_loop())
        lease = THREADS.acquire(config.connection, clock, observer)
        self._front = Front(config, lease, self._ring, self._clock.wall)
        self._timeout = config.connection.default_api_timeout

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[TopicPartition, ...]:
        with self._front.used() as front:
            call = topic_metadata_call((checked_topic(topic),), self._deadline(timeout))
            return partitions_of(await self._wait(front.call(call), timeout), topic)

    # --- records -----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 0.0) -> Blocks:
        """Blocks that have arrived; awaits the first for at most `timeout` seconds. See `Consumer.poll`."""
        with self._front.used() as front:
            deadline = self._clock.monotonic() + timeout
            await asyncio.sleep(0)  # noqa: TID251 - not a wait: a loop around polls that find data must not keep others out
            while True:
                self._ring.clear()
                front.check_wakeup()
                blocks = front.collect()
                if blocks:
                    return blocks
                left = deadline - self._clock.monotonic()
                if left <= 0 or not await self._ring.wait(left):
                    if timeout > 0 and front.is_warming_up:
                        deadline = self._clock.monotonic() + timeout
                        continue
                    front.check_wakeup()
                    front.raise_standing_failure()
                    return blocks

    # --- positions ---------------------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> Offset:
        """The offset of the next record that poll hands out."""
        with self._front.used() as front:
            deadline = self._deadline(timeout)
            while True:
                self._ring.clear()
                front.absorb()
                position = front.position(partition)
                if position is not None:
                    return position
                if not await self._ring.wait(max(0.0, deadline - self._clock.monotonic())):
                    raise OperationTimeout(f"the position of {partition} is not known yet")

    # --- look-ups ----------------------------------------------------------------------------------------------------

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        for timestamp in timestamps.values():
            at_time(timestamp)
        return await self._find(timestamps, timeout)

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        return only_offsets(await self._find(beginning(partitions), timeout))

    async def end_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        return only_offsets(await self._find(end(partitions), timeout))

    async def max_timestamp_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return await self._find(dict.fromkeys(partitions, MAX_TIMESTAMP), timeout)

    # --- life --------------------------------------------------------------------------------------------------------

    async def close(self, timeout: float | None = None) -> None:
        """Leave. Returns within `timeout` (default 30 s) whatever the brokers do; a second call does nothing."""
        deadline = self._clock.monotonic() + (30.0 if timeout is None else timeout)
        try:
            await self._settle(self._front.begin_close(), deadline)
        finally:  # even when this task is cancelled, our share of the network thread is given back
            left = self._front.end_close()
        await self._settle(left, deadline)

    async def _settle(self, future: Future[None] | None, deadline: float) -> None:
        if future is not None:
            left = max(0.0, deadline - self._clock.monotonic())
            await asyncio.wait([asyncio.wrap_future(future)], timeout=left)

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def _find(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        with self._front.used() as front:
            found: Found = await self._wait(front.find_offsets(wanted, self._deadline(timeout)), timeout)
            return dict(found)

    def _deadline(self, timeout: float | None) -> float:
        return self._clock.monotonic() + (self._timeout if timeout is None else timeout)

    async def _wait(self, future: Future[T], timeout: float | None) -> T:
        """The network thread keeps the deadline; ours is a little later, in case it cannot."""
        grace = (self._timeout if timeout is None else timeout) + 1.0
        done, _ = await asyncio.wait([wrapped := asyncio.wrap_future(future)], timeout=grace)
        if not done:
            raise OperationTimeout("the network thread did not answer in time")
        return wrapped.result()
