"""What was said about the consumers of a run while it goes on, and who hears it: the engine that runs them.

Thread: any; whoever hears must only pass it on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from multilane.lanes.consumer_overrides import AS_CONFIGURED, ConsumerOverrides
from multilane.logs import logger

log = logger(__name__)

Hear = Callable[[str, ConsumerOverrides], object]


class RuntimeOverrides:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._told: dict[str, ConsumerOverrides] = {}
        self._hear: Hear | None = None

    @property
    def told(self) -> Mapping[str, ConsumerOverrides]:
        with self._lock:
            return dict(self._told)

    def of(self, consumer: str) -> ConsumerOverrides:
        return self.told.get(consumer, AS_CONFIGURED)

    def steer(self, consumer: str, steering: ConsumerOverrides) -> None:
        with self._lock:
            self._told[consumer] = steering
            if self._hear is not None:
                self._hear(consumer, steering)
        lanes = "as configured" if steering.lanes is None else str(steering.lanes)
        log.info("consumer %s is %s, lanes: %s", consumer, "paused" if steering.is_paused else "running", lanes)

    @contextmanager
    def heard_by(self, hear: Hear) -> Iterator[None]:
        """For one run. What was said before it began counts too; nothing of it is left for the next."""
        with self._lock:
            self._hear = hear
            for consumer, steering in self._told.items():
                hear(consumer, steering)
        try:
            yield
        finally:
            with self._lock:
                self._hear = None
                self._told.clear()
