"""The consumer for asyncio: like `Consumer`, but awaits instead of blocking.

Thread: the event loop's, one task at a time; `wakeup` from any.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, TypeVar
from uuid import UUID

from multilane.client.admin.answers import coordinator_in
from multilane.client.admin.topics import ids_of, partitions_of, topic_metadata_call
from multilane.client.arguments import seconds, topic_list
from multilane.client.blocking_calls import BlockingCall, Wait
from multilane.client.blocks import Blocks
from multilane.client.consumer_base import ConsumerBase, OffsetsLike, warn_unless_closed
from multilane.client.consumer_state import ConsumerState
from multilane.client.departures import LEAVE_SECONDS
from multilane.client.fetch.offsets import FoundOffsets
from multilane.client.group.coordinator_settings import METADATA_LIMIT, coordinator_call, settings_call, settings_in
from multilane.client.group.wanted_topics import checked_topic
from multilane.client.iteration import RecordStream
from multilane.client.lookups import at_epochs, at_times, beginning, end, newest, only_offsets, with_epochs
from multilane.client.sharing import THREADS
from multilane.client.subscriber import Subscriber
from multilane.clock import Clock, SystemClock
from multilane.config.consumer import parse_consumer
from multilane.config.values import merged
from multilane.errors import BrokerError, MultilaneError, OperationTimeout
from multilane.logs import logger
from multilane.metrics.observer import Observer
from multilane.types import Offset, OffsetAndEpoch, OffsetAndMetadata, OffsetAndTimestamp, PartitionLike, TopicPartition
from multilane.wire.records.record import Record

log = logger(__name__)

T = TypeVar("T")

_GRACE: Final = 1.0
_LOOP_POLL_SECONDS: Final = 1.0  # timeout of each poll in a loop over records


class LoopSignal:
    """Wakes the event loop from other threads. Once set, it does nothing until cleared, so that the loop is not flooded
    with callbacks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()
        self._is_set = False

    def set(self) -> None:
        if self._is_set:
            return
        self._is_set = True
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            return  # the loop is closed

    def clear(self) -> None:
        self._is_set = False
        self._event.clear()

    async def wait(self, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                return await self._event.wait()
        except TimeoutError:
            return False


class AsyncConsumer(ConsumerBase):
    """Reads partitions into columns. Create it inside a running event loop. See `Consumer` for the properties."""

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
        self._signal = LoopSignal(asyncio.get_running_loop())
        with THREADS.acquire(config.connection, clock, observer).kept_on_success() as lease:
            self._state = ConsumerState(config, lease, self._signal, self._clock, asyncio.current_task)
        self._subscriber = Subscriber(self._state, self._clock.monotonic)
        self._timeout = config.connection.default_api_timeout
        self._group_id = config.group.group_id
        self._metadata_limit: int | MultilaneError | None = None  # as answered once

    def __del__(self) -> None:
        warn_unless_closed(self)

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an exception the rows of the last poll are not committed: they may not be processed."""
        await self._close(None, keep_last=kind is not None)

    async def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[TopicPartition, ...]:
        with self._state.used() as state:
            call = topic_metadata_call((checked_topic(topic),), self._deadline(timeout))
            return partitions_of(await self._wait(state.call(call), timeout), topic)

    async def topic_ids(self, topics: Collection[str], timeout: float | None = None) -> dict[str, UUID]:
        """The brokers' current ids: a topic that was deleted and created again has a new one."""
        with self._state.used() as state:
            call = topic_metadata_call(topic_list(topics), self._deadline(timeout))
            return ids_of(await self._wait(state.call(call), timeout))

    async def metadata_limit(self, timeout: float | None = None) -> int | None:
        """The most bytes that the coordinator takes as metadata of a committed offset; None if it does not say. Raises
        if this client may not ask. Asks once."""
        if self._metadata_limit is None:
            try:
                value = (await self.coordinator_settings((METADATA_LIMIT,), timeout)).get(METADATA_LIMIT, "")
                self._metadata_limit = int(value) if value.isdecimal() else -1
            except BrokerError as error:
                if error.retriable:
                    raise
                self._metadata_limit = error
        if isinstance(self._metadata_limit, MultilaneError):
            raise self._metadata_limit
        return self._metadata_limit if self._metadata_limit >= 0 else None

    async def coordinator_settings(self, names: Sequence[str], timeout: float | None = None) -> dict[str, str]:
        """These settings of the broker that coordinates the group. Raises if this client may not read them."""
        group = self._group_id or ""
        with self._state.used() as state:
            deadline = self._deadline(timeout)
            _, node = coordinator_in(await self._wait(state.call(coordinator_call(group, deadline)), timeout), group)
            return settings_in(await self._wait(state.call(settings_call(node, names, deadline)), timeout))

    # --- records -----------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 0.0) -> Blocks:
        """Return the blocks that have arrived; await the first for at most `timeout` seconds. See `Consumer.poll`."""
        with self._state.used() as state:
            self._subscriber.enter_poll()
            try:
                return await self._poll(state, timeout)
            finally:
                self._subscriber.leave_poll()

    async def _poll(self, state: ConsumerState, timeout: float) -> Blocks:
        deadline = self._clock.monotonic() + seconds(timeout)
        await asyncio.sleep(0)  # noqa: TID251 - yields: a loop around polls that find data must not starve other tasks
        while True:
            self._signal.clear()
            state.check_wakeup()
            while (event := state.next_event()) is not None:
                await self._drive(self._subscriber.handle(event))
            blocks = self._subscriber.collect()
            if blocks:
                return blocks
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0 or not await self._signal.wait(remaining):
                if timeout > 0 and state.is_warming_up:
                    deadline = self._clock.monotonic() + timeout
                    continue
                state.check_wakeup()
                state.raise_current_failure()
                self._subscriber.raise_refusal()
                return blocks

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Iterate over single records until the consumer is closed; see `Consumer.__iter__`."""
        stream = RecordStream(self._state, self._subscriber)
        try:
            while not self._state.is_done:
                with self._state.used():
                    record = stream.next()
                if record is None:
                    stream.add(await self.poll(_LOOP_POLL_SECONDS))
                else:
                    yield record
        finally:
            stream.put_back()

    # --- the group ---------------------------------------------------------------------------------------------------

    async def unsubscribe(self) -> None:
        """Release all partitions, auto-commit if enabled, and leave the group."""
        with self._state.used():
            await self._drive(self._subscriber.unsubscribe())

    async def commit(
        self,
        offsets: OffsetsLike | None = None,
        timeout: float | None = None,
    ) -> None:
        """Commit these offsets (default: the position of each partition); return when the group has stored them."""
        with self._state.used():
            await self._drive(self._subscriber.commits.commit(offsets, timeout))

    async def committed(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None where it has committed none."""
        with self._state.used():
            return await self._drive(self._subscriber.commits.committed(partitions, timeout))

    # --- positions ---------------------------------------------------------------------------------------------------

    async def position(self, partition: PartitionLike, timeout: float | None = None) -> Offset:
        """The offset of the next record that poll() returns."""
        with self._state.used() as state:
            deadline = self._deadline(timeout)
            while True:
                self._signal.clear()
                state.update_positions()
                position = state.position(partition)
                if position is not None:
                    return position
                if not await self._signal.wait(max(0.0, deadline - self._clock.monotonic())):
                    raise state.position_timeout(partition)

    # --- lookups ----------------------------------------------------------------------------------------------------

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
        """The end of each log, and the leader epoch that reported it."""
        return with_epochs(await self._find(end(partitions), timeout))

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """The end of a leader epoch in each log: the newest epoch up to the given one, and the offset after its last
        record. Omits partitions whose leader has no such epoch."""
        return with_epochs(await self._find(at_epochs(epochs), timeout, by_epoch=True))

    async def max_timestamp_offsets(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return await self._find(newest(partitions), timeout)

    # --- closing -----------------------------------------------------------------------------------------------------

    async def close(self, timeout: float | None = None) -> None:
        """Auto-commit if enabled, leave the group and close. Returns within `timeout` (default: 30s) whatever the
        brokers do. A second call does nothing."""
        await self._close(timeout, keep_last=False)

    async def _close(self, timeout: float | None, *, keep_last: bool) -> None:
        if self._subscriber.is_closing:
            return  # a listener calls this during close(); the outer call continues
        deadline = self._clock.monotonic() + (30.0 if timeout is None else seconds(timeout))
        try:
            with self._state.exclusive_if_free() as alone:
                if alone:
                    await self._drive(self._subscriber.close(deadline, keep_last=keep_last))
        finally:
            try:
                leave_until = min(deadline, self._clock.monotonic() + LEAVE_SECONDS)
                await self._wait_until(self._state.begin_close(leave_until), deadline)
            finally:  # release our share of the network thread, even if this task is cancelled
                ended = self._state.end_close()
        await self._wait_until(ended, deadline)

    async def _wait_until(self, future: Future[None] | None, deadline: float) -> None:
        if future is not None:
            remaining = max(0.0, deadline - self._clock.monotonic())
            await asyncio.wait([asyncio.wrap_future(future)], timeout=remaining)

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def _drive(self, call: BlockingCall[T]) -> T:
        try:
            wanted = next(call)
            while True:
                try:
                    answer = await self._await(wanted)
                except BaseException as error:  # noqa: BLE001 - the call decides what it means
                    wanted = call.throw(error)
                else:
                    wanted = call.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result

    async def _await(self, wanted: Wait | Awaitable[Any]) -> Any:
        if isinstance(wanted, Wait):
            remaining = max(0.0, wanted.deadline - self._clock.monotonic())
            grace = _GRACE if wanted.with_grace else 0.0
            return await self._wait(wanted.future, remaining, grace, is_interruptible=wanted.is_interruptible)
        return await wanted

    async def _find(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None, *, by_epoch: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        with self._state.used() as state:
            future = state.find_offsets(wanted, self._deadline(timeout), by_epoch=by_epoch)
            found: FoundOffsets = await self._wait(future, timeout)
            return dict(found)

    def _deadline(self, timeout: float | None) -> float:
        return self._clock.monotonic() + (self._timeout if timeout is None else seconds(timeout))

    async def _wait(
        self, future: Future[T], timeout: float | None, grace: float = _GRACE, *, is_interruptible: bool = True
    ) -> T:
        """The network thread enforces the deadline. Ours is a little later, in case it cannot."""
        end = self._clock.monotonic() + (self._timeout if timeout is None else seconds(timeout)) + grace
        future.add_done_callback(lambda _: self._signal.set())
        while not future.done():
            self._signal.clear()
            if is_interruptible:
                self._state.check_wakeup()
            if not future.done() and not await self._signal.wait(max(0.0, end - self._clock.monotonic())):
                break
        if not future.done():
            raise OperationTimeout("the network thread did not answer in time")
        return future.result()
