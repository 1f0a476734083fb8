"""Holds one producer: creates it on first use, and replaces it after a fatal error.

Thread: any.

Owns the producer. An idempotent producer refuses every send after a fatal error, so a caller that gets `ClientFailed`
passes the producer to `replace` and gets a new one. Never replaces a producer because another one failed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from multilane.errors import ClientClosed
from multilane.logs import logger

log = logger(__name__)


class Closes(Protocol):
    def close(self, timeout: float | None = None) -> None: ...


P = TypeVar("P", bound=Closes)


class ProducerSlot(Generic[P]):
    def __init__(self, make: Callable[[], P]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._producer: P | None = None
        self._closed = False

    def get(self) -> P:
        with self._lock:
            if self._closed:
                raise ClientClosed("the producers of this application are closed")
            if self._producer is None:
                self._producer = self._make()
            return self._producer

    def replace(self, failed: P) -> None:
        """The next `get` makes a new one. Undelivered messages of the failed producer fail, and so do their futures.

        It is closed on a thread of its own: this may be called on the failed producer's thread, which `close` joins.
        """
        with self._lock:
            if self._producer is not failed:
                return
            self._producer = None
        log.error("replacing a producer after a fatal error; its undelivered messages are reported as failed")
        threading.Thread(target=failed.close, args=(0.0,), name="multilane-producer-end", daemon=True).start()

    def close(self, timeout: float | None = None) -> None:
        """Waits for acknowledgements; a second call does nothing."""
        with self._lock:
            self._closed = True
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout)
