"""The consumer for asyncio: the same as `Consumer`, awaiting where that one blocks.

Thread: the event loop's, one task at a time; `wakeup` from any.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, TypeVar
from uuid import UUID

from multilane.client.admin.topics import ids_of, partitions_of, topic_metadata_call
from multilane.client.arguments import seconds, topic_list
from multilane.client.blocks import Blocks
from multilane.client.consumer_base import ConsumerBase, Offsets, warn_unless_closed
from multilane.client.consumer_state import ConsumerState
from multilane.client.departures import LAST_WORD
from multilane.client.fetch.offsets import Found
from multilane.client.group.wanted_topics import checked_topic
from multilane.client.iteration import RecordStream
from multilane.client.lookups import at_epochs, at_times, beginning, end, newest, only_offsets, with_epochs
from multilane.client.plans import Plan, Wait
from multilane.client.sharing import THREADS
from multilane.client.subscriber import Subscriber
from multilane.clock import Clock, SystemClock
from multilane.config.consumer import parse_consumer
from multilane.config.values import merged
from multilane.errors import OperationTimeout
from multilane.logs import logger
from multilane.metrics.observer import Observer
from multilane.types import Offset, OffsetAndEpoch, OffsetAndMetadata, OffsetAndTimestamp, PartitionLike, TopicPartition
from multilane.wire.records.record import Record

log = logger(__name__)

T = TypeVar("T")

_GRACE: Final = 1.0
_PATIENCE: Final = 1.0  # of a poll in a loop over records; it is repeated


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


class AsyncConsumer(ConsumerBase):
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
        config = parse_consumer(merged(properties, more))
        for warning in config.warnings:
            log.warning("%s", warning)
        self._clock = clock or SystemClock()
        self._ring = LoopSignal(asyncio.get_running_loop())
        with THREADS.acquire(config.connection, clock, observer).kept_on_success() as lease:
            self._front = ConsumerState(config, lease, self._ring, self._clock, asyncio.current_task)
        self._subscriber = Subscriber(self._front, self._clock.monotonic)
        self._timeout = config.connection.default_api_timeout

    def __del__(self) -> None:
        warn_unless_closed(self)

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an exception what the last poll handed out is not committed: it may not be done."""
        await self._close(None, keep_last=kind is not None)

    async def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[TopicPartition, ...]:
        with self._front.used() as front:
            call = topic_metadata_call((checked_topic(topic),), self._deadline(timeout))
            return partitions_of(await self._wait(front.call(call), timeout), topic)

    async def topic_ids(self, topics: Collection[str], timeout: float | None = None) -> dict[str, UUID]:
        """As the brokers know them now: a topic that is made again has another one."""
        with self._front.used() as front:
            call = topic_metadata_call(topic_list(topics), self._deadline(timeout))
            return ids_of(await self._wait(front.call(call), timeout))

    # --- records -----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 0.0) -> Blocks:
        """Blocks that have arrived; awaits the first for at most `timeout` seconds. See `Consumer.poll`."""
        with self._front.used() as front:
            self._subscriber.enter_poll()
            try:
                return await self._poll(front, timeout)
            finally:
                self._subscriber.leave_poll()

    async def _poll(self, front: ConsumerState, timeout: float) -> Blocks:
        deadline = self._clock.monotonic() + seconds(timeout)
        await asyncio.sleep(0)  # noqa: TID251 - not a wait: a loop around polls that find data must not keep others out
        while True:
            self._ring.clear()
            front.check_wakeup()
            while (event := front.next_event()) is not None:
                await self._drive(self._subscriber.attend(event))
            blocks = self._subscriber.collect()
            if blocks:
                return blocks
            left = deadline - self._clock.monotonic()
            if left <= 0 or not await self._ring.wait(left):
                if timeout > 0 and front.is_warming_up:
                    deadline = self._clock.monotonic() + timeout
                    continue
                front.check_wakeup()
                front.raise_standing_failure()
                self._subscriber.raise_refusal()
                return blocks

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Records one at a time, for ever; see `Consumer.__iter__`."""
        stream = RecordStream(self._front, self._subscriber)
        try:
            while not self._front.is_done:
                with self._front.used():
                    record = stream.next()
                if record is None:
                    stream.add(await self.poll(_PATIENCE))
                else:
                    yield record
        finally:
            stream.put_back()

    # --- the group ---------------------------------------------------------------------------------------------------

    async def unsubscribe(self) -> None:
        """Give up all partitions, commit if that happens by itself, and leave the group."""
        with self._front.used():
            await self._drive(self._subscriber.unsubscribe())

    async def commit(
        self,
        offsets: Offsets | None = None,
        timeout: float | None = None,
    ) -> None:
        """Commit these offsets, or how far each partition was handed out; returns when the group has them."""
        with self._front.used():
            await self._drive(self._subscriber.commit(offsets, timeout))

    async def committed(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        with self._front.used():
            return await self._drive(self._subscriber.committed(partitions, timeout))

    # --- positions ---------------------------------------------------------------------------------------------------

    async def position(self, partition: PartitionLike, timeout: float | None = None) -> Offset:
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
                    raise front.unplaced(partition)

    # --- look-ups ----------------------------------------------------------------------------------------------------

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return await self._find(at_times(timestamps), timeout)

    async def beginning_offsets(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        return only_offsets(await self._find(beginning(partitions), timeout))

    async def end_offsets(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        return only_offsets(await self._find(end(partitions), timeout))

    async def log_ends(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """Where each log ends, and the epoch of the leader that says so."""
        return with_epochs(await self._find(end(partitions), timeout))

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """Where a leader epoch ends in each log: the newest epoch up to the one given, and the offset after its last
        record. Left out where the leader knows of no such epoch."""
        return with_epochs(await self._find(at_epochs(epochs), timeout, by_epoch=True))

    async def max_timestamp_offsets(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return await self._find(newest(partitions), timeout)

    # --- life --------------------------------------------------------------------------------------------------------

    async def close(self, timeout: float | None = None) -> None:
        """Commit if that happens by itself, leave the group, and end. Returns within `timeout` (default 30 s) whatever
        the brokers do; a second call does nothing."""
        await self._close(timeout, keep_last=False)

    async def _close(self, timeout: float | None, *, keep_last: bool) -> None:
        if self._subscriber.is_closing:
            return  # from within the last call of a listener: whoever made that goes on
        deadline = self._clock.monotonic() + (30.0 if timeout is None else seconds(timeout))
        try:
            with self._front.parting() as alone:
                if alone:
                    await self._drive(self._subscriber.close(deadline, keep_last=keep_last))
        finally:
            try:
                last_word = min(deadline, self._clock.monotonic() + LAST_WORD)
                await self._settle(self._front.begin_close(last_word), deadline)
            finally:  # even when this task is cancelled, our share of the network thread is given back
                left = self._front.end_close()
        await self._settle(left, deadline)

    async def _settle(self, future: Future[None] | None, deadline: float) -> None:
        if future is not None:
            left = max(0.0, deadline - self._clock.monotonic())
            await asyncio.wait([asyncio.wrap_future(future)], timeout=left)

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def _drive(self, plan: Plan[T]) -> T:
        try:
            wanted = next(plan)
            while True:
                try:
                    answer = await self._await(wanted)
                except BaseException as error:  # noqa: BLE001 - the plan decides what it means
                    wanted = plan.throw(error)
                else:
                    wanted = plan.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result

    async def _await(self, wanted: Wait | Awaitable[Any]) -> Any:
        if isinstance(wanted, Wait):
            left = max(0.0, wanted.deadline - self._clock.monotonic())
            grace = _GRACE if wanted.is_kept else 0.0
            return await self._wait(wanted.future, left, grace, is_interruptible=wanted.is_interruptible)
        return await wanted

    async def _find(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None, *, by_epoch: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        with self._front.used() as front:
            future = front.find_offsets(wanted, self._deadline(timeout), by_epoch=by_epoch)
            found: Found = await self._wait(future, timeout)
            return dict(found)

    def _deadline(self, timeout: float | None) -> float:
        return self._clock.monotonic() + (self._timeout if timeout is None else seconds(timeout))

    async def _wait(
        self, future: Future[T], timeout: float | None, grace: float = _GRACE, *, is_interruptible: bool = True
    ) -> T:
        """The network thread keeps the deadline; ours is a little later, in case it cannot."""
        end = self._clock.monotonic() + (self._timeout if timeout is None else seconds(timeout)) + grace
        future.add_done_callback(lambda _: self._ring.set())
        while not future.done():
            self._ring.clear()
            if is_interruptible:
                self._front.check_wakeup()
            if not future.done() and not await self._ring.wait(max(0.0, end - self._clock.monotonic())):
                break
        if not future.done():
            raise OperationTimeout("the network thread did not answer in time")
        return future.result()
