"""The consumer for threads: every call blocks until it is done or its time is up.

Thread: application, one at a time; `wakeup` from any.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
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
from multilane.errors import MultilaneError, OperationTimeout
from multilane.hooks import Observer
from multilane.types import Offset, OffsetAndTimestamp, TopicPartition
from multilane.wire.compose import MAX_TIMESTAMP

log = logging.getLogger(__name__)

T = TypeVar("T")


class Consumer(Steering):
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
        config = parse_consumer({**(properties or {}), **more})
        for warning in config.warnings:
            log.warning("%s", warning)
        if config.group_id is not None:
            log.warning("group.id has no effect yet: partitions are assigned by hand, offsets are not committed")
        self._clock = clock or SystemClock()
        self._ring = threading.Event()
        lease = THREADS.acquire(config.connection, clock, observer)
        self._front = Front(config, lease, self._ring, self._clock.wall)
        self._timeout = config.connection.default_api_timeout

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[TopicPartition, ...]:
        """The partitions a topic has."""
        with self._front.used() as front:
            call = topic_metadata_call((checked_topic(topic),), self._deadline(timeout))
            return partitions_of(self._wait(front.call(call), timeout), topic)

    # --- records -----------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = 0.0) -> Blocks:
        """Blocks that have arrived; waits at most `timeout` seconds for the first. Empty when there is nothing.

        The first poll of a process waits longer where it must: until the decoder is loaded (a second), or compiled
        once on this machine (five). A timeout of 0 never waits.

        Costs no round trip to the network thread. Raises what stopped a partition, once as soon as nothing else is to
        be handed out, and again whenever it would come back empty while the partition is still stopped.
        """
        with self._front.used() as front:
            deadline = self._clock.monotonic() + timeout
            while True:
                self._ring.clear()
                front.check_wakeup()
                blocks = front.collect()
                if blocks:
                    return blocks
                left = deadline - self._clock.monotonic()
                if left <= 0 or not self._ring.wait(left):
                    if timeout > 0 and front.is_warming_up:
                        deadline = self._clock.monotonic() + timeout
                        continue
                    front.check_wakeup()
                    front.raise_standing_failure()
                    return blocks

    # --- positions ---------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout: float | None = None) -> Offset:
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
                    raise OperationTimeout(f"the position of {partition} is not known yet")

    # --- look-ups ----------------------------------------------------------------------------------------------------

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time (ms since 1970) in each partition; None where there is none."""
        for timestamp in timestamps.values():
            at_time(timestamp)
        return self._find(timestamps, timeout)

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        return only_offsets(self._find(beginning(partitions), timeout))

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, Offset]:
        """The offset that the next record will get; under read_committed that of the first undecided transaction."""
        return only_offsets(self._find(end(partitions), timeout))

    def max_timestamp_offsets(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The record with the largest timestamp in each partition; None where the partition is empty."""
        return self._find(dict.fromkeys(partitions, MAX_TIMESTAMP), timeout)

    # --- life --------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Leave. Returns within `timeout` (default 30 s) whatever the brokers do; a second call does nothing."""
        deadline = self._clock.monotonic() + (30.0 if timeout is None else timeout)
        try:
            self._settle(self._front.begin_close(), deadline)
        finally:  # whatever interrupts the wait, our share of the network thread is given back
            self._settle(self._front.end_close(), deadline)

    def _settle(self, future: Future[None] | None, deadline: float) -> None:
        if future is not None:
            with suppress(FutureTimeout):
                future.result(max(0.0, deadline - self._clock.monotonic()))

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _find(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        with self._front.used() as front:
            found: Found = self._wait(front.find_offsets(wanted, self._deadline(timeout)), timeout)
            return dict(found)

    def _deadline(self, timeout: float | None) -> float:
        return self._clock.monotonic() + (self._timeout if timeout is None else timeout)

    def _wait(self, future: Future[T], timeout: float | None) -> T:
        """The network thread keeps the deadline; ours is a little later, in case it cannot."""
        try:
            return future.result((self._timeout if timeout is None else timeout) + 1.0)
        except FutureTimeout as error:
            if isinstance(error, MultilaneError):
                raise
            raise OperationTimeout("the network thread did not answer in time") from None
