"""One producer for all who send copies with equal settings and credentials, such as the triggers of an app.

Thread: any; a lock guards the table.

A share is closed like a producer; the last one closes the producer. One that failed for good is handed out no more, so
whoever replaces its share gets a new producer. Credential files count with what they hold: a changed file is another
key. A forked child starts with none. Owns the producers.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from multilane.client.produce.delivery import RecordMetadata
from multilane.client.produce.producer import Producer
from multilane.config.connection import connection_key
from multilane.config.producer import parse_producer
from multilane.config.sharing_key import client_key
from multilane.errors import ClientClosed, ClientFailed


@dataclass(slots=True, eq=False)
class _Entry:
    producer: Producer
    shares: int = 0


class SharedProducers:
    def __init__(self, make: Callable[[Mapping[str, object]], Producer] = Producer) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._entries: dict[Hashable, _Entry] = {}

    def share(self, properties: Mapping[str, object]) -> ProducerShare:
        """Raises ConfigError if a property is wrong."""
        key = producer_key(properties)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(self._make(properties))
            entry.shares += 1
            return ProducerShare(self, key, entry)

    def has_failed(self, key: Hashable, entry: _Entry) -> None:
        with self._lock:
            if self._entries.get(key) is entry:
                del self._entries[key]

    def release(self, key: Hashable, entry: _Entry) -> bool:
        """Returns whether it was the last share."""
        with self._lock:
            entry.shares -= 1
            if entry.shares:
                return False
            if self._entries.get(key) is entry:
                del self._entries[key]
            return True

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._entries = {}


class ProducerShare:
    """The part of a producer that sends copies."""

    def __init__(self, table: SharedProducers, key: Hashable, entry: _Entry) -> None:
        self._table = table
        self._key = key
        self._entry = entry
        self._lock = threading.Lock()
        self._is_closed = False

    def send(self, *record: Any) -> Future[RecordMetadata]:
        """See `Producer.send`."""
        if self._is_closed:
            raise ClientClosed("this producer is closed")
        future = self._entry.producer.send(*record)
        future.add_done_callback(self._look)
        return future

    def close(self, timeout: float | None = None) -> None:
        """The last share waits at most `timeout` (default: 30s) for acknowledgements."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        if self._table.release(self._key, self._entry):
            self._entry.producer.close(timeout)

    def _look(self, future: Future[RecordMetadata]) -> None:
        """Before the caller's callbacks, which replace this share."""
        if not future.cancelled() and isinstance(future.exception(), ClientFailed):
            self._table.has_failed(self._key, self._entry)


def producer_key(properties: Mapping[str, object]) -> Hashable:
    """Equal for properties that may share a producer."""
    config = parse_producer(properties)
    connection = config.connection
    ours = replace(config, connection=replace(connection, bootstrap_servers=(), warnings=()))
    return client_key(connection), connection_key(connection), ours


SHARED_PRODUCERS = SharedProducers()
os.register_at_fork(after_in_child=SHARED_PRODUCERS.after_fork)
