"""The overrides of the consumers of a run, passed on to the engine that runs them.

Thread: any; the engine's function is called with the lock held and must only pass the overrides on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from multilane.lanes.consumer_overrides import AS_CONFIGURED, ConsumerOverrides
from multilane.logs import logger

log = logger(__name__)

ApplyOverrides = Callable[[str, ConsumerOverrides], object]


class RuntimeOverrides:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._by_consumer: dict[str, ConsumerOverrides] = {}
        self._apply: ApplyOverrides | None = None

    @property
    def by_consumer(self) -> Mapping[str, ConsumerOverrides]:
        with self._lock:
            return dict(self._by_consumer)

    @property
    def are_applied(self) -> bool:
        """Whether an engine runs."""
        with self._lock:
            return self._apply is not None

    def of(self, consumer: str) -> ConsumerOverrides:
        return self.by_consumer.get(consumer, AS_CONFIGURED)

    def set(self, consumer: str, overrides: ConsumerOverrides) -> None:
        with self._lock:
            self._by_consumer[consumer] = overrides
            if self._apply is not None:
                self._apply(consumer, overrides)
        lanes = "as configured" if overrides.lanes is None else str(overrides.lanes)
        log.info("consumer %s is %s, lanes: %s", consumer, "paused" if overrides.is_paused else "running", lanes)

    def view(self, configured: Mapping[str, int]) -> dict[str, dict[str, Any]]:
        """The overrides in effect, as JSON values. `configured`: the lanes of each consumer."""
        return {
            name: {"paused": self.of(name).is_paused, "lanes": self.of(name).lanes or lanes, "configured": lanes}
            for name, lanes in configured.items()
        }

    @contextmanager
    def applied_by(self, apply: ApplyOverrides) -> Iterator[None]:
        """For one run. Overrides set before it begins apply too. None of them carry over to the next run."""
        with self._lock:
            self._apply = apply
            for consumer, overrides in self._by_consumer.items():
                apply(consumer, overrides)
        try:
            yield
        finally:
            with self._lock:
                self._apply = None
                self._by_consumer.clear()
