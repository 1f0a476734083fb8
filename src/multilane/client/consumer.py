"""The consumer for threads: every call blocks until it is done or its time is up.

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
from multilane.client.blocks import Blocks
from multilane.client.consumer_base import ConsumerBase, Offsets, warn_unless_closed
from multilane.client.consumer_state import ConsumerState
from multilane.client.departures import LAST_WORD
from multilane.client.fetch.offsets import Found
from multilane.client.group.wanted_topics import ServerPattern, checked_topic
from multilane.client.iteration import RecordStream
from multilane.client.lookups import at_epochs, at_times, beginning, end, newest, only_offsets, with_epochs
from multilane.client.plans import Plan, Wait
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
_PATIENCE: Final = 1.0  # of a poll in a loop over records; it is repeated


class Consumer(ConsumerBase):
    """Reads partitions into columns.

    >>> with Consumer({"bootstrap.servers": "localhost:9092", "auto.offset.reset": "earliest"}) as consumer:
    ...     consumer.assign([TopicPartition("orders", 0)])
    ...     for block in consumer.poll(timeout=1.0):
    ...         print(len(block), block.offsets[0])

    Properties have Kafka's own names; other spellings are understood, unknown ones refused. They may also be given as
    keywords: `Consumer(bootstrap_servers="localhost:9092")`.
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
        self._ring = threading.Event()
        with THREADS.acquire(config.connection, clock, observer).kept_on_success() as lease:
            self._front = ConsumerState(config, lease, self._ring, self._clock, threading.current_thread)
        self._subscriber = Subscriber(self._front, self._clock.monotonic)
        self._timeout = config.connection.default_api_timeout

    def __del__(self) -> None:
        warn_unless_closed(self)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an exception what the last poll handed out is not committed: it may not be done."""
        self._close(None, keep_last=kind is not None)

    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[TopicPartition, ...]:
        """The partitions a topic has."""
        with self._front.used() as front:
            call = topic_metadata_call((checked_topic(topic),), self._deadline(timeout))
            return partitions_of(self._wait(front.call(call), timeout), topic)

    def topic_ids(self, topics: Collection[str], timeout: float | None = None) -> dict[str, UUID]:
        """As the brokers know them now: a topic that is made again has another one."""
        with self._front.used() as front:
            call = topic_metadata_call(topic_list(topics), self._deadline(timeout))
            return ids_of(self._wait(front.call(call), timeout))

    # --- records -----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = 0.0) -> Blocks:
        """Blocks that have arrived; waits at most `timeout` seconds for the first. Empty when there is nothing.

        The first poll on a machine waits longer where it must: until the decoder is compiled (some seconds). A timeout
        of 0 never waits.

        Costs no round trip to the network thread. Raises what stopped a partition, once as soon as nothing else is to
        be handed out, and again whenever it would come back empty while the partition is still stopped.
        """
        with self._front.used() as front:
            self._subscriber.enter_poll()
            try:
                return self._poll(front, timeout)
            finally:
                self._subscriber.leave_poll()

    def _poll(self, front: ConsumerState, timeout: float) -> Blocks:
        deadline = self._clock.monotonic() + seconds(timeout)
        while True:
            self._ring.clear()
            front.check_wakeup()
            while (event := front.next_event()) is not None:
                self._drive(self._subscriber.attend(event))
            blocks = self._subscriber.collect()
            if blocks:
                return blocks
            left = deadline - self._clock.monotonic()
            if left <= 0 or not self._ring.wait(left):
                if timeout > 0 and front.is_warming_up:
                    deadline = self._clock.monotonic() + timeout
                    continue
                front.check_wakeup()
                front.raise_standing_failure()
                self._subscriber.raise_refusal()
                return blocks

    def __iter__(self) -> Iterator[Record]:
        """Records one at a time, for ever; ends when the consumer is closed. Asking for the next one says that the one
        before is done with: commit() covers the records that the loop has had, and no others."""
        stream = RecordStream(self._front, self._subscriber)
        try:
            while not self._front.is_done:
                with self._front.used():
                    record = stream.next()
                if record is None:
                    stream.add(self.poll(_PATIENCE))
                else:
                    yield record
        finally:
            stream.put_back()

    # --- the group ---------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions from now on. Those that were assigned before keep their position. To assign
        nothing is to unsubscribe."""
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
        """See `Steering.subscribe`. To subscribe to nothing is to unsubscribe."""
        if isinstance(topics, Iterable) and not isinstance(topics, str | bytes):
            topics = tuple(topics)
        if topics == ():
            self.unsubscribe()
        else:
            super().subscribe(topics, listener)

    def unsubscribe(self) -> None:
        """Give up all partitions, commit if that happens by itself, and leave the group."""
        with self._front.used():
            self._drive(self._subscriber.unsubscribe())

    def commit(
        self,
        offsets: Offsets | None = None,
        timeout: float | None = None,
    ) -> None:
        """Commit these offsets, or how far each partition was handed out; returns when the group has them."""
        with self._front.used():
            self._drive(self._subscriber.commit(offsets, timeout))

    def committed(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        with self._front.used():
            return self._drive(self._subscriber.committed(partitions, timeout))

    # --- positions ---------------------------------------------------------------------------------------------------

    def position(self, partition: PartitionLike, timeout: float | None = None) -> Offset:
        """The offset of the next record that poll hands out."""
        with self._front.used() as front:
            deadline = self._deadline(timeout)
            while True:
                self._ring.clear()
                front.absorb()
                position = front.position(partition)
                if position is not None:
                    return position
                if not self._ring.wait(max(0.0, deadline - self._clock.monotonic())):
                    raise front.unplaced(partition)

    # --- look-ups ----------------------------------------------------------------------------------------------------

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time (ms since 1970) in each partition; None where there is none."""
        return self._find(at_times(timestamps), timeout)

    def beginning_offsets(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        return only_offsets(self._find(beginning(partitions), timeout))

    def end_offsets(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """The offset that the next record will get; under read_committed that of the first undecided transaction."""
        return only_offsets(self._find(end(partitions), timeout))

    def log_ends(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """Where each log ends, and the epoch of the leader that says so."""
        return with_epochs(self._find(end(partitions), timeout))

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """Where a leader epoch ends in each log: the newest epoch up to the one given, and the offset after its last
        record. Left out where the leader knows of no such epoch."""
        return with_epochs(self._find(at_epochs(epochs), timeout, by_epoch=True))

    def max_timestamp_offsets(
        self, partitions: Collection[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The record with the largest timestamp in each partition; None where the partition is empty."""
        return self._find(newest(partitions), timeout)

    # --- life --------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Commit if that happens by itself, leave the group, and end. Returns within `timeout` (default 30 s) whatever
        the brokers do; a second call does nothing."""
        self._close(timeout, keep_last=False)

    def _close(self, timeout: float | None, *, keep_last: bool) -> None:
        if self._subscriber.is_closing:
            return  # from within the last call of a listener: whoever made that goes on
        deadline = self._clock.monotonic() + (30.0 if timeout is None else seconds(timeout))
        try:
            with self._front.parting() as alone:
                if alone:
                    self._drive(self._subscriber.close(deadline, keep_last=keep_last))
        finally:
            try:
                last_word = min(deadline, self._clock.monotonic() + LAST_WORD)
                self._settle(self._front.begin_close(last_word), deadline)
            finally:  # whatever interrupts the wait, our share of the network thread is given back
                self._settle(self._front.end_close(), deadline)

    def _settle(self, future: Future[None] | None, deadline: float) -> None:
        if future is not None:
            with suppress(FutureTimeout):
                future.result(max(0.0, deadline - self._clock.monotonic()))

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _drive(self, plan: Plan[T]) -> T:
        try:
            wanted = next(plan)
            while True:
                try:
                    answer = self._await(wanted)
                except BaseException as error:  # noqa: BLE001 - the plan decides what it means
                    wanted = plan.throw(error)
                else:
                    wanted = plan.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result

    def _await(self, wanted: Wait | Awaitable[Any]) -> Any:
        if isinstance(wanted, Wait):
            left = max(0.0, wanted.deadline - self._clock.monotonic())
            grace = _GRACE if wanted.is_kept else 0.0
            return self._wait(wanted.future, left, grace, is_interruptible=wanted.is_interruptible)
        if inspect.iscoroutine(wanted):
            wanted.close()
        raise TypeError("the listener's methods are coroutine functions: use them with an AsyncConsumer")

    def _find(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None, *, by_epoch: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        with self._front.used() as front:
            future = front.find_offsets(wanted, self._deadline(timeout), by_epoch=by_epoch)
            found: Found = self._wait(future, timeout)
            return dict(found)

    def _deadline(self, timeout: float | None) -> float:
        return self._clock.monotonic() + (self._timeout if timeout is None else seconds(timeout))

    def _wait(
        self, future: Future[T], timeout: float | None, grace: float = _GRACE, *, is_interruptible: bool = True
    ) -> T:
        """The network thread keeps the deadline; ours is a little later, in case it cannot."""
        end = self._clock.monotonic() + (self._timeout if timeout is None else seconds(timeout)) + grace
        future.add_done_callback(lambda _: self._ring.set())
        while not future.done():
            self._ring.clear()
            if is_interruptible:
                self._front.check_wakeup()
            if not future.done() and not self._ring.wait(max(0.0, end - self._clock.monotonic())):
                break
        if not future.done():
            raise OperationTimeout("the network thread did not answer in time")
        return future.result()
