"""The producer: librdkafka behind futures.

Thread: application, any number at a time. Futures are completed on the producer's poll thread or, while records are
sent in quick succession, by the sender itself; one thread at a time.

Owns the librdkafka client and its poll thread. Loads nothing and starts no thread before the first send. Each record's
future completes exactly once: acknowledged, refused, timed out, or dropped by close().
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from multilane.client.produce.delivery import (
    Deliveries,
    DeliveryStatus,
    DeliveryTally,
    RecordMetadata,
    Written,
    deliver_to,
)
from multilane.client.produce.interrupts import deferred_interrupts
from multilane.client.produce.librdkafka import (
    AUTHENTICATION,
    SSL,
    SecretMask,
    connection_settings,
    error_from,
    raised_error,
    secrets_of,
    start_client,
    survive_forks,
    undelivered,
)
from multilane.client.produce.outgoing import OutgoingHeaders, OutgoingRecord, Payload, librdkafka_record
from multilane.clock import Clock, SystemClock
from multilane.config.producer import parse_producer
from multilane.config.values import merged
from multilane.errors import ClientClosed, ClientFailed, ForkedClient, MultilaneError, OperationTimeout, SaslError
from multilane.logs import logger

if TYPE_CHECKING:
    from multilane.config.producer import ProducerConfig

__all__ = ["Deliveries", "OutgoingRecord", "Producer", "RecordMetadata", "Written"]

log = logger(__name__)

_POLL_SECONDS: Final = 0.2
_STAY_AWAY_SECONDS: Final = 0.02
_SERVE_EVERY: Final = 200
_CLOSE_SECONDS: Final = 30.0
_ABANDON_SECONDS: Final = 1.0
_PURGED: Final = frozenset({-152, -151})
_LONGEST_TOPIC_WAIT_MS: Final = 30_000
_numbers: Final = count(1)


class Producer:
    """Writes records.

    >>> with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
    ...     stored = producer.send("orders", b"3 apples", key=b"alice").result()
    ...     print(stored.partition, stored.offset)

    By default all in-sync replicas acknowledge a record, and records are stored once and in order.
    """

    def __init__(
        self, properties: Mapping[str, object] | None = None, /, *, clock: Clock | None = None, **more: object
    ) -> None:
        self._config = parse_producer(merged(properties, more))
        self._clock = clock or SystemClock()
        self._mask = SecretMask(secrets_of(self._config.connection))
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._turn = threading.Condition()
        self._turns = 0
        self._kafka: Any = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._stop = threading.Event()
        self._serving = threading.Lock()
        self._counting = threading.Lock()
        self._sent = 0
        self._bursts = 0
        self._status = DeliveryStatus(self._translate)
        self._last_error: MultilaneError | None = None
        self._login_error: MultilaneError | None = None
        self._purge_reason: MultilaneError | None = None  # why records were purged
        survive_forks(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def handle(self) -> object | None:
        handle: object | None = self._kafka
        return handle

    # --- sending -----------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Payload = None,
        key: Payload = None,
        headers: OutgoingHeaders = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Future[RecordMetadata]:
        """Send a record; the future returns where it was stored. Waits for buffer space at most `max.block.ms`."""
        future: Future[RecordMetadata] = Future()
        record = (topic, value, key, headers, partition, timestamp)
        self._put(self._started(), record, deliver_to(future, self._status))
        return future

    def send_many(self, records: Iterable[OutgoingRecord | tuple[Any, ...]]) -> Future[Deliveries]:
        """Send many records; one future completes when all are stored, and returns where.

        Cheaper than one future per record. If several records fail, the future raises the first error. Raises if there
        is no buffer space for `max.block.ms`; the records before that one are sent.
        """
        kafka = self._started()
        tally = DeliveryTally(self._status)
        on_delivery = tally.on_delivery
        sent = 0
        for record in records:
            self._put(kafka, record, on_delivery)
            sent += 1
        tally.seal(sent)
        return tally.future

    def flush(self, timeout: float | None = None) -> None:
        """Send without lingering and wait until every record is acknowledged or has failed. Raises OperationTimeout
        after `timeout` (default: `delivery.timeout.ms` + 5s)."""
        self._check()
        if self._kafka is None:
            return
        limit = self._config.delivery_timeout + 5.0 if timeout is None else timeout
        left = self._drain(limit)
        if left:
            raise OperationTimeout(f"{left} records are not acknowledged yet{self._cause()}")

    def close(self, timeout: float | None = None) -> None:
        """Wait at most `timeout` (default: 30s) for acknowledgements, drop unacknowledged records and stop the
        threads."""
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                self._closed = True
                return
            self._closed = True
        if self._kafka is None:
            return
        left = self._drain(_CLOSE_SECONDS if timeout is None else timeout)
        if left:
            log.warning("closing the producer: dropping %d unacknowledged records", left)
            self._abandon(self._kafka)
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._open:
            self._abandon(self._kafka)
        self._kafka = None

    # --- delivery ----------------------------------------------------------------------------------------------------

    def _put(self, kafka: Any, record: Sequence[Any], on_delivery: Any) -> None:
        topic, value, key, partition, more = librdkafka_record(*record)
        deadline = None
        while True:
            seen = self._turns
            sent = self._count(1)
            try:
                kafka.produce(topic, value, key, partition, on_delivery, **more)
                break
            except BufferError:
                self._count(-1)
                now = self._clock.monotonic()
                deadline = now + self._config.max_block if deadline is None else deadline
                self._wait_for_room(kafka, seen, deadline - now)
            except Exception as error:
                self._count(-1)
                if type(error).__name__ != "KafkaException":
                    raise
                raise raised_error(error, f"a record to {topic}", self._mask) from None
        if self._stop.is_set():
            self._abandon(kafka)
        elif sent % _SERVE_EVERY == 0:
            self._bursts += 1
            self._try_serve(kafka, 0.0)

    def _count(self, records: int) -> int:
        """Called before a record is handed to librdkafka, so that completed records never outnumber sent ones."""
        with self._counting:
            self._sent += records
            return self._sent

    @property
    def _open(self) -> int:
        """The number of records that are neither acknowledged nor failed."""
        return self._sent - self._status.completed

    def _wait_for_room(self, kafka: Any, seen: int, patience: float) -> None:
        """Acknowledgements free buffer space: serve them, or wait for the thread that does."""
        if patience <= 0:
            raise OperationTimeout(f"no room for the record within max.block.ms{self._cause()}")
        patience = min(patience, _POLL_SECONDS)
        if not self._try_serve(kafka, patience):
            with self._turn:
                self._turn.wait_for(lambda: self._turns != seen, patience)
        self._check()

    def _drain(self, timeout: float) -> int:
        return self._drain_from(self._kafka, timeout)

    def _drain_from(self, kafka: Any, timeout: float) -> int:
        """Wait for acknowledgements; returns how many records are still open."""
        deadline = self._clock.monotonic() + timeout
        while self._open and (left := deadline - self._clock.monotonic()) > 0:
            self._bursts += 1
            if self._serving.acquire(timeout=left):
                try:
                    self._serve(lambda: kafka.flush(min(left, _POLL_SECONDS)))
                finally:
                    self._serving.release()
        return self._open

    def _abandon(self, kafka: Any) -> None:
        """Drop the open records. This covers a send that races with close(): either close() counts its record, or the
        send sees after its produce() that the poll thread has stopped, and calls this itself."""
        self._purge_reason = ClientClosed(f"the producer was closed before the record was acknowledged{self._cause()}")
        kafka.purge()
        self._drain_from(kafka, _ABANDON_SECONDS)

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedClient("this producer was created before a fork; create a new one in this process")
        if self._closed:
            raise ClientClosed("this producer is closed")

    def _cause(self) -> str:
        return f"; last error: {self._last_error}" if self._last_error is not None else ""

    # --- starting ----------------------------------------------------------------------------------------------------

    def _started(self) -> Any:
        self._check()
        if self._kafka is None:
            with self._lock:
                self._check()
                if self._kafka is None:
                    self._start()
        return self._kafka

    def _start(self) -> None:
        from confluent_kafka import Producer as Librdkafka

        settings = {**producer_settings(self._config), "error_cb": self._on_error}
        kafka = start_client(Librdkafka, settings, self._mask)
        name = f"multilane-producer-{next(_numbers)}"
        self._thread = threading.Thread(target=self._run, args=(kafka,), name=name, daemon=True)
        self._thread.start()
        self._kafka = kafka

    # --- serving callbacks -------------------------------------------------------------------------------------------

    def _run(self, kafka: Any) -> None:
        """The poll thread, which serves senders of few records. It pauses while senders are busy: they serve their own
        callbacks, because callbacks on another thread would compete for the GIL at every record."""
        bursts = -1
        while not self._stop.is_set():
            if bursts != self._bursts:
                bursts = self._bursts
                self._stop.wait(_STAY_AWAY_SECONDS)
                continue
            with self._serving:
                self._serve(lambda: kafka.poll(_POLL_SECONDS))

    def _try_serve(self, kafka: Any, timeout: float) -> bool:
        """Serve pending callbacks, unless another thread is serving."""
        if not self._serving.acquire(blocking=False):
            return False
        try:
            self._serve(lambda: kafka.poll(timeout))
        finally:
            self._serving.release()
        return True

    def _serve(self, poll: Callable[[], object]) -> None:
        """Run callbacks. The caller holds `_serving`, so that one thread at a time runs them."""
        try:
            with deferred_interrupts():
                poll()
            if self._login_error is not None:
                self._fail_login(self._login_error)
        except SaslError as error:  # from the token function
            self._last_error = self._login_error = error
        except Exception as error:  # fail loudly, whatever it was
            log.critical("multilane's producer failed", exc_info=error)
            self._purge(ClientFailed(f"a producer callback failed: {type(error).__name__}: {error}"))
        with self._turn:
            self._turns += 1
            self._turn.notify_all()

    def _fail_login(self, error: MultilaneError) -> None:
        """The broker refused the login. Before the first success, drop all records at once: a wrong password should not
        take a delivery timeout to surface."""
        self._login_error = None
        if not self._status.any_delivered:
            self._purge(error)

    def _purge(self, reason: MultilaneError) -> None:
        self._purge_reason = reason
        if self._kafka is not None:
            self._kafka.purge()

    def _on_error(self, error: Any) -> None:
        self._last_error = error_from(error, "the producer", self._mask)
        if error.code() in (AUTHENTICATION, SSL):
            self._login_error = self._last_error

    def _translate(self, error: Any, message: Any) -> MultilaneError:
        if error.code() in _PURGED and self._purge_reason is not None:
            return self._purge_reason
        return undelivered(error, message, self._mask, self._cause())


def producer_settings(config: ProducerConfig) -> dict[str, Any]:
    """The producer's settings for librdkafka. The result contains secrets: pass it on and do not keep it."""
    return connection_settings(config.connection) | {
        "acks": config.acks,
        "enable.idempotence": config.idempotence,
        "linger.ms": config.linger * 1_000,
        "batch.size": min(config.batch_size, config.max_request_size),
        "queue.buffering.max.kbytes": max(1, config.buffer_memory // 1024),
        "queue.buffering.max.messages": 0,  # bounded in bytes alone
        "delivery.timeout.ms": round(config.delivery_timeout * 1_000),
        "request.timeout.ms": min(round(config.connection.request_timeout * 1_000), 900_000),
        "compression.type": config.compression,
        "message.max.bytes": config.max_request_size,
        "max.in.flight.requests.per.connection": config.max_in_flight,
        "retries": config.retries,
        "partitioner": config.partitioner,
        "topic.metadata.propagation.max.ms": min(round(config.max_block * 1_000), _LONGEST_TOPIC_WAIT_MS),
    }
