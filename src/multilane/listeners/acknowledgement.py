"""The acknowledgement a function gets with `ack: manual`: a record counts as done when it is called, not before.

Thread: any; the first call decides, whoever makes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Acknowledgement:
    """Call it, or `acknowledge()`, when the record is done with; `reject(error)` sends it the way of failed ones."""

    __slots__ = ("_decided", "_lock", "_tell")

    def __init__(self, tell: Callable[[BaseException | None], None]) -> None:
        """`tell` is called once, on the thread that decides."""
        self._tell = tell
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
        self._tell(error)
