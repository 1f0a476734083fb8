"""The acknowledgement that a function receives with `ack: manual`: calling it settles the record.

Thread: any; the first call decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Acknowledgement:
    """Call it, or `acknowledge()`, to settle the record; `reject(error)` treats the record as failed."""

    __slots__ = ("_decided", "_lock", "_on_decided")

    def __init__(self, on_decided: Callable[[BaseException | None], None]) -> None:
        """`on_decided` is called once, on the thread that decides."""
        self._on_decided = on_decided
        self._lock = threading.Lock()
        self._decided = False

    def __call__(self) -> None:
        self.acknowledge()

    def acknowledge(self) -> None:
        self._decide(None)

    def reject(self, error: BaseException) -> None:
        self._decide(error)

    @property
    def is_decided(self) -> bool:
        return self._decided

    def _decide(self, error: BaseException | None) -> None:
        with self._lock:
            if self._decided:
                return
            self._decided = True
        self._on_decided(error)
