"""Defers Ctrl-C until librdkafka's callbacks are done.

Thread: any; only the main thread receives signals.

Python raises KeyboardInterrupt at any point of the main thread. Inside a delivery callback, librdkafka's binding
swallows it together with the delivery report, so that the record's future would never complete.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    received: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if received:
            before(*received[0])
