"""Writes many records and waits until all are stored, for a thread that has nothing else to do.

Thread: one, which also serves librdkafka's callbacks.

Owns its librdkafka client, which reports only failures: a record costs one call and no delivery report. A record that
has not failed when nothing is left to send is stored. A writer is unusable after a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap
from typing import Any, Final

from multilane.client.produce.librdkafka import (
    AUTHENTICATION,
    SSL,
    SecretMask,
    error_from,
    raised_error,
    secrets_of,
    start_client,
    survive_forks,
    undelivered,
)
from multilane.client.produce.outgoing import librdkafka_record
from multilane.client.produce.producer import producer_settings
from multilane.clock import Clock, SystemClock
from multilane.config.producer import parse_producer
from multilane.errors import ForkedClient, MultilaneError, OperationTimeout

_SERVE_EVERY: Final = 1_000
_POLL_SECONDS: Final = 0.2


class BulkWriter:
    """>>> writer = BulkWriter({"bootstrap.servers": "localhost:9092"})
    >>> writer.put([("orders", b"3 apples", b"alice")])
    >>> writer.flush()  # now they are stored
    """

    def __init__(self, properties: dict[str, object], *, clock: Clock | None = None) -> None:
        self._config = parse_producer(properties)
        self._clock = clock or SystemClock()
        self._mask = SecretMask(secrets_of(self._config.connection))
        self._pid = os.getpid()
        self._kafka: Any = None
        self._has_delivered = False  # at least one flush succeeded
        self._last_error: MultilaneError | None = None
        self._failure: MultilaneError | None = None
        survive_forks(self)

    @property
    def handle(self) -> object | None:
        handle: object | None = self._kafka
        return handle

    def put(self, records: Iterable[tuple[Any, ...]]) -> int:
        """Send records (topic, value, key, headers, partition, timestamp) in order; returns how many. Waits for buffer
        space at most `max.block.ms`. Raises the failure of an earlier record as soon as it is known."""
        kafka, put = self._started(), 0
        produce = kafka.produce
        for topic, value, key, partition, more in starmap(librdkafka_record, records):
            try:
                produce(topic, value, key, partition, **more)
            except Exception as error:  # noqa: BLE001 - _retry decides
                self._retry(kafka, error, (topic, value, key, partition), more)
            put += 1
            if not put % _SERVE_EVERY:
                self._serve(kafka)
        return put

    def put_plain(self, records: Iterable[tuple[str, bytes | None, bytes | None]]) -> int:
        """Like `put`, for (topic, value, key) that need no checks or conversions: less work per record."""
        kafka, put = self._started(), 0
        produce = kafka.produce
        for record in records:
            try:
                produce(*record)
            except Exception as error:  # noqa: BLE001 - _retry decides
                self._retry(kafka, error, record, {})
            put += 1
            if not put % _SERVE_EVERY:
                self._serve(kafka)
        return put

    def _serve(self, kafka: Any) -> None:
        kafka.poll(0)
        self._check()

    def _retry(self, kafka: Any, error: Exception, record: Sequence[Any], more: Mapping[str, Any]) -> None:
        """Retry until there is buffer space for the record, or raise another error."""
        while isinstance(error, BufferError):
            self._wait_for_room(kafka)
            try:
                kafka.produce(*record, **more)
            except Exception as again:  # noqa: BLE001 - raised below
                error = again
            else:
                return
        if type(error).__name__ != "KafkaException":
            raise error
        raise raised_error(error, f"a record to {record[0]}", self._mask) from None

    def flush(self) -> None:
        """Return when all records are stored; raise if one is not, after `delivery.timeout.ms` at the latest."""
        kafka = self._started()
        deadline = self._clock.monotonic() + self._config.delivery_timeout + 5.0
        while left := kafka.flush(_POLL_SECONDS):
            self._check()
            if self._clock.monotonic() > deadline:
                raise OperationTimeout(f"{left} records are not acknowledged yet{self._cause()}")
        self._check()
        self._has_delivered = True

    def discard(self) -> None:
        """Drop the records that are not stored yet."""
        if self._kafka is not None and os.getpid() == self._pid:
            self._kafka.purge()
            self._kafka.flush(_POLL_SECONDS)
            self._kafka = None

    # --- delivery ----------------------------------------------------------------------------------------------------

    def _started(self) -> Any:
        if os.getpid() != self._pid:
            raise ForkedClient("this writer was created before a fork; create a new one in this process")
        self._check()
        if self._kafka is None:
            from confluent_kafka import Producer as Librdkafka

            own = {"delivery.report.only.error": True, "on_delivery": self._on_failure, "error_cb": self._on_error}
            self._kafka = start_client(Librdkafka, {**producer_settings(self._config), **own}, self._mask)
        return self._kafka

    def _wait_for_room(self, kafka: Any) -> None:
        deadline = self._clock.monotonic() + self._config.max_block
        before = len(kafka)
        while len(kafka) >= before:
            kafka.poll(_POLL_SECONDS)
            self._check()
            if self._clock.monotonic() > deadline:
                raise OperationTimeout(f"no room for the record within max.block.ms{self._cause()}")

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _cause(self) -> str:
        return f"; last error: {self._last_error}" if self._last_error is not None else ""

    def _on_failure(self, error: Any, message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = undelivered(error, message, self._mask, self._cause())

    def _on_error(self, error: Any) -> None:
        self._last_error = error_from(error, "the producer", self._mask)
        if error.code() in (AUTHENTICATION, SSL) and not self._has_delivered and self._failure is None:
            self._failure = self._last_error
