"""The place of one producer: made when first wanted, replaced when it can go on no more.

Thread: any.

Owns the producer it made. An idempotent producer that met a fatal error refuses everything from then on, so whoever
sees `ClientFailed` gives it back here and takes a fresh one. Never replaces one for another's failure twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from multilane.errors import ClientClosed
from multilane.logs import logger

if TYPE_CHECKING:
    from multilane.client.produce.producer import Producer

log = logger(__name__)


class ProducerSlot:
    def __init__(self, make: Callable[[], Producer]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._closed = False

    def get(self) -> Producer:
        with self._lock:
            if self._closed:
                raise ClientClosed("the producers of this application are closed")
            if self._producer is None:
                self._producer = self._make()
            return self._producer

    def replace(self, failed: Producer) -> None:
        """The next `get` makes a new one. What the failed one had not delivered is given up, and its futures say so.

        Ended on a thread of its own: this may be called on the failed producer's, which its end waits for.
        """
        with self._lock:
            if self._producer is not failed:
                return
            self._producer = None
        log.error("a producer failed for good and is replaced; what it had not delivered is told as failed")
        threading.Thread(target=failed.close, args=(0.0,), name="multilane-producer-end", daemon=True).start()

    def close(self, timeout: float | None = None) -> None:
        """Waits for acknowledgements; a second call does nothing."""
        with self._lock:
            self._closed = True
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout)
