"""Keeps Ctrl-C out of librdkafka's callbacks.

Thread: any; only the main thread gets signals.

Python raises KeyboardInterrupt wherever the main thread is. Inside a delivery callback librdkafka's binding swallows
it, and with it the fate of a record: its future would never complete. So it waits until the callbacks are done.
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
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])
