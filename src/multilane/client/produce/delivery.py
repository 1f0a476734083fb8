"""Completes the futures of sent records: one future per record, or one for many.

Thread: callbacks run on whichever thread serves the producer, one at a time; the rest on the sender's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from multilane.client.futures import fulfil, refuse
from multilane.errors import ClientFailed, MultilaneError
from multilane.types import NO_OFFSET, Offset, TopicPartition


class DeliveryStatus:
    """Shared by all deliveries of one producer: how errors are translated, how many records are completed, and whether
    any was delivered."""

    __slots__ = ("_translate", "any_delivered", "completed")

    def __init__(self, translate: Callable[[Any, Any], MultilaneError]) -> None:
        self._translate = translate
        self.completed = 0
        self.any_delivered = False

    def error(self, error: Any, message: Any) -> MultilaneError:
        """Never raises, because the record's future must complete in any case."""
        try:
            return self._translate(error, message)
        except Exception as cause:  # noqa: BLE001 - the record's future raises it
            failure = ClientFailed(f"a delivery error could not be read: {type(cause).__name__}: {cause}")
            failure.__cause__ = cause
            return failure


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record was stored. `offset` is -1 with `acks=0`."""

    topic: str
    partition: int
    offset: Offset
    timestamp: int


@dataclass(frozen=True, slots=True)
class Written:
    """Records of one `send_many` in one partition. Records of other producers may lie between the two offsets."""

    records: int
    first_offset: Offset
    last_offset: Offset


@dataclass(frozen=True, slots=True)
class Deliveries:
    records: int
    partitions: Mapping[TopicPartition, Written]


def deliver_to(future: Future[RecordMetadata], status: DeliveryStatus) -> Callable[[Any, Any], None]:
    """The delivery callback of a single record."""

    def on_delivery(error: Any, message: Any) -> None:
        status.completed += 1
        if error is not None:
            refuse(future, status.error(error, message))
            return
        status.any_delivered = True
        offset, (_, timestamp) = message.offset(), message.timestamp()
        stored_at = NO_OFFSET if offset is None or offset < 0 else Offset(offset)
        fulfil(future, RecordMetadata(message.topic(), message.partition(), stored_at, timestamp))

    return on_delivery


class DeliveryTally:
    """Counts the deliveries of one `send_many`. The first failure fails the future, once every record is completed.

    The sender seals it with the total while deliveries arrive. Each side writes its own number before it reads the
    other's, so at least one of them sees both. If both do, the lock decides which one finishes.
    """

    def __init__(self, status: DeliveryStatus) -> None:
        self.future: Future[Deliveries] = Future()
        self._status = status
        self._done = 0
        self._total: int | None = None
        self._counts: dict[tuple[str, int], list[int]] = {}
        self._error: MultilaneError | None = None
        self._lock = threading.Lock()
        self._finished = False

    def on_delivery(self, error: Any, message: Any) -> None:
        self._status.completed += 1
        if error is None:
            self._note(message)
        elif self._error is None:
            self._error = self._status.error(error, message)
        self._done += 1
        if self._done == self._total:
            self._finish()

    def seal(self, total: int) -> None:
        self._total = total
        if self._done == total:
            self._finish()

    def _note(self, message: Any) -> None:
        self._status.any_delivered = True
        offset = message.offset()
        offset = NO_OFFSET if offset is None or offset < 0 else offset
        key = (message.topic(), message.partition())
        counts = self._counts.get(key)
        if counts is None:
            self._counts[key] = [1, offset, offset]
            return
        counts[0] += 1
        counts[1] = min(counts[1], offset)
        counts[2] = max(counts[2], offset)

    def _finish(self) -> None:
        with self._lock:
            if self._finished:
                return
            self._finished = True
        if self._error is not None:
            refuse(self.future, self._error)
            return
        written = {
            TopicPartition(*key): Written(n, Offset(first), Offset(last))
            for key, (n, first, last) in sorted(self._counts.items())
        }
        fulfil(self.future, Deliveries(self._done, MappingProxyType(written)))
