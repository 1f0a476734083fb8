"""The consumer for threads: every call blocks until it completes or times out.

Thread: application, one at a time; `wakeup` from any.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, TypeVar
from uuid import UUID

from multilane.client.admin.topics import ids_of, partitions_of, topic_metadata_call
from multilane.client.arguments import partition_list, seconds, topic_list
from multilane.client.blocking_calls import BlockingCall, Wait
from multilane.client.blocks import Blocks
from multilane.client.consumer_base import ConsumerBase, OffsetsLike, warn_unless_closed
from multilane.client.consumer_state import ConsumerState
from multilane.client.departures import LEAVE_SECONDS
from multilane.client.fetch.offsets import FoundOffsets
from multilane.client.group.wanted_topics import ServerPattern, checked_topic
from multilane.client.iteration import RecordStream
from multilane.client.lookups import at_epochs, at_times, beginning, end, newest, only_offsets, with_epochs
from multilane.client.rebalance import RebalanceListener
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
_LOOP_POLL_SECONDS: Final = 1.0  # timeout of each poll in a loop over records


class Consumer(ConsumerBase):
    """Reads partitions into columns. Every call blocks.

    >>> with Consumer({"bootstrap.servers": "localhost:9092", "auto.offset.reset": "earliest"}) as consumer:
    ...     consumer.assign([TopicPartition("orders", 0)])
    ...     for block in consumer.poll(timeout=1.0):
    ...         print(len(block), block.offsets[0])

    Properties have Kafka's own names. Other spellings are accepted, unknown properties are rejected. Properties may
    also be keywords: `Consumer(bootstrap_servers="localhost:9092")`.
    """

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
        self._signal = threading.Event()
        with THREADS.acquire(config.connection, clock, observer).kept_on_success() as lease:
            self._state = ConsumerState(config, lease, self._signal, self._clock, threading.current_thread)
        self._subscriber = Subscriber(self._state, self._clock.monotonic)
        self._timeout = config.connection.default_api_timeout

    def __del__(self) -> None:
        warn_unless_closed(self)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an exception the rows of the last poll are not committed: they may not be processed."""
        self._close(None, keep_last=kind is not None)

    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[TopicPartition, ...]:
        """The partitions of a topic."""
        with self._state.used() as state:
            call = topic_metadata_call((checked_topic(topic),), self._deadline(timeout))
            return partitions_of(self._wait(state.call(call), timeout), topic)

    def topic_ids(self, topics: Collection[str], timeout: float | None = None) -> dict[str, UUID]:
        """The brokers' current ids: a topic that was deleted and created again has a new one."""
        with self._state.used() as state:
            call = topic_metadata_call(topic_list(topics), self._deadline(timeout))
            return ids_of(self._wait(state.call(call), timeout))

    # --- records -----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = 0.0) -> Blocks:
        """Return the blocks that have arrived; wait at most `timeout` seconds for the first. Empty if there are none.

        The first poll on a machine may wait some seconds longer, until the decoder is compiled. A timeout of 0 never
        waits.

        A poll costs no round trip to the network thread. It raises the failure of a stopped partition once, as soon as
        no more blocks are buffered, and again whenever it would return nothing while the partition is still stopped.
        """
        with self._state.used() as state:
            self._subscriber.enter_poll()
            try:
                return self._poll(state, timeout)
            finally:
                self._subscriber.leave_poll()

    def _poll(self, state: ConsumerState, timeout: float) -> Blocks:
        deadline = self._clock.monotonic() + seconds(timeout)
        while True:
            self._signal.clear()
            state.check_wakeup()
            while (event := state.next_event()) is not None:
                self._drive(self._subscriber.handle(event))
            blocks = self._subscriber.collect()
            if blocks:
                return blocks
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0 or not self._signal.wait(remaining):
                if timeout > 0 and state.is_warming_up:
                    deadline = self._clock.monotonic() + timeout
                    continue
                state.check_wakeup()
                state.raise_current_failure()
                self._subscriber.raise_refusal()
                return blocks

    def __iter__(self) -> Iterator[Record]:
        """Iterate over single records until the consumer is closed. The next iteration marks the record before it as
        processed: commit() covers exactly the records that the loop has received."""
        stream = RecordStream(self._state, self._subscriber)
        try:
            while not self._state.is_done:
                with self._state.used():
                    record = stream.next()
                if record is None:
                    stream.add(self.poll(_LOOP_POLL_SECONDS))
                else:
                    yield record
        finally:
            stream.put_back()

    # --- the group ---------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions from now on. Partitions that stay assigned keep their position. An empty
        assignment unsubscribes."""
        wanted = partition_list(partitions)
        if wanted or self.subscription is None:
            super().assign(wanted)
        else:
            self.unsubscribe()

    def subscribe(
        self,
        topics: Iterable[str] | re.Pattern[str] | ServerPattern,
        listener: RebalanceListener | None = None,
    ) -> None:
        """See `ConsumerBase.subscribe`. An empty list of topics unsubscribes."""
        if isinstance(topics, Iterable) and not isinstance(topics, str | bytes):
            topics = tuple(topics)
        if topics == ():
            self.unsubscribe()
        else:
            super().subscribe(topics, listener)

    def unsubscribe(self) -> None:
        """Release all partitions, auto-commit if enabled, and leave the group."""
        with self._state.used():
            self._drive(self._subscriber.unsubscribe())

    def commit(
        self,
        offsets: OffsetsLike | None = None,
        timeout: float | None = None,
    ) -> None:
        """Commit these offsets (default: the position of each partition); return when the group has stored them."""
        with self._state.used():
            self._drive(self._subscriber.commits.commit(offsets, timeout))

    def committed(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None where it has committed none."""
        with self._state.used():
            return self._drive(self._subscriber.commits.committed(partitions, timeout))

    # --- positions ---------------------------------------------------------------------------------------------------

    def position(self, partition: PartitionLike, timeout: float | None = None) -> Offset:
        """The offset of the next record that poll() returns."""
        with self._state.used() as state:
            deadline = self._deadline(timeout)
            while True:
                self._signal.clear()
                state.update_positions()
                position = state.position(partition)
                if position is not None:
                    return position
                if not self._signal.wait(max(0.0, deadline - self._clock.monotonic())):
                    raise state.position_timeout(partition)

    # --- lookups ----------------------------------------------------------------------------------------------------

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time (ms since 1970) in each partition; None if there is none."""
        return self._find(at_times(timestamps), timeout)

    def beginning_offsets(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        return only_offsets(self._find(beginning(partitions), timeout))

    def end_offsets(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """The offset of the next record to be written; under read_committed, that of the first open transaction."""
        return only_offsets(self._find(end(partitions), timeout))

    def log_ends(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """The end of each log, and the leader epoch that reported it."""
        return with_epochs(self._find(end(partitions), timeout))

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """The end of a leader epoch in each log: the newest epoch up to the given one, and the offset after its last
        record. Omits partitions whose leader has no such epoch."""
        return with_epochs(self._find(at_epochs(epochs), timeout, by_epoch=True))

    def max_timestamp_offsets(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The record with the largest timestamp in each partition; None if the partition is empty."""
        return self._find(newest(partitions), timeout)

    # --- closing -----------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Auto-commit if enabled, leave the group and close. Returns within `timeout` (default: 30s) whatever the
        brokers do. A second call does nothing."""
        self._close(timeout, keep_last=False)

    def _close(self, timeout: float | None, *, keep_last: bool) -> None:
        if self._subscriber.is_closing:
            return  # a listener calls this during close(); the outer call continues
        deadline = self._clock.monotonic() + (30.0 if timeout is None else seconds(timeout))
        try:
            with self._state.exclusive_if_free() as alone:
                if alone:
                    self._drive(self._subscriber.close(deadline, keep_last=keep_last))
        finally:
            try:
                leave_until = min(deadline, self._clock.monotonic() + LEAVE_SECONDS)
                self._wait_until(self._state.begin_close(leave_until), deadline)
            finally:  # release our share of the network thread, whatever interrupts the wait
                self._wait_until(self._state.end_close(), deadline)

    def _wait_until(self, future: Future[None] | None, deadline: float) -> None:
        if future is not None:
            with suppress(FutureTimeout):
                future.result(max(0.0, deadline - self._clock.monotonic()))

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _drive(self, call: BlockingCall[T]) -> T:
        try:
            wanted = next(call)
            while True:
                try:
                    answer = self._await(wanted)
                except BaseException as error:  # noqa: BLE001 - the call decides what it means
                    wanted = call.throw(error)
                else:
                    wanted = call.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result

    def _await(self, wanted: Wait | Awaitable[Any]) -> Any:
        if isinstance(wanted, Wait):
            remaining = max(0.0, wanted.deadline - self._clock.monotonic())
            grace = _GRACE if wanted.with_grace else 0.0
            return self._wait(wanted.future, remaining, grace, is_interruptible=wanted.is_interruptible)
        if inspect.iscoroutine(wanted):
            wanted.close()
        raise TypeError("the listener's methods are coroutine functions: use them with an AsyncConsumer")

    def _find(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None, *, by_epoch: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        with self._state.used() as state:
            future = state.find_offsets(wanted, self._deadline(timeout), by_epoch=by_epoch)
            found: FoundOffsets = self._wait(future, timeout)
            return dict(found)

    def _deadline(self, timeout: float | None) -> float:
        return self._clock.monotonic() + (self._timeout if timeout is None else seconds(timeout))

    def _wait(
        self, future: Future[T], timeout: float | None, grace: float = _GRACE, *, is_interruptible: bool = True
    ) -> T:
        """The network thread enforces the deadline. Ours is a little later, in case it cannot."""
        end = self._clock.monotonic() + (self._timeout if timeout is None else seconds(timeout)) + grace
        future.add_done_callback(lambda _: self._signal.set())
        while not future.done():
            self._signal.clear()
            if is_interruptible:
                self._state.check_wakeup()
            if not future.done() and not self._signal.wait(max(0.0, end - self._clock.monotonic())):
                break
        if not future.done():
            raise OperationTimeout("the network thread did not answer in time")
        return future.result()
