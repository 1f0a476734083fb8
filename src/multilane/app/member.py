"""A member of an application in a process that another one started: the composition root there.

Thread: `run` on its own, the rest from any.

It is the process engine with the same groups, pumps and lanes. The differences: the process that started it (a Spark
driver, or the parent of `multilane run --members`) stops it and collects its counts.
"""

from __future__ import annotations

from typing import Any

from multilane.app.targets import find_app
from multilane.engines.process.driver import ProcessEngine
from multilane.engines.process.progress import SettledCounts
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.lanes.failure_log import FailureCollector
from multilane.metrics.observer import Count, Duration, Gauge, ReportBuffer


class AppMember:
    """Made from `module:name`; a Spark driver names this class by its import path."""

    def __init__(self, target: str) -> None:
        self._app = find_app(target)
        self._news = ReportBuffer()
        self._failures = FailureCollector()
        self._engine: ProcessEngine | None = None  # the running one, or the last one
        self._settled = SettledCounts()
        self._gauges: list[Gauge] | None = None

    def run(self) -> None:
        with self._app.observed_by(self._news), self._app.failures_to(self._failures):
            self._app.run()

    def stop(self) -> None:
        self._app.stop()

    def apply_overrides(self, consumer: str, overrides: ConsumerOverrides) -> None:
        self._app.overrides.set(consumer, overrides)

    def counts(self) -> list[Count | Duration]:
        self._engine = self._app.engine or self._engine
        groups = {} if self._engine is None else self._engine.consumers
        return [*self._news.take(), *self._settled.take(groups)]

    def gauges(self) -> list[Gauge] | None:
        """Those of the last call: the loop reads them meanwhile. None if it did not: it is blocked, or over."""
        engine, (gauges, self._gauges) = self._app.engine, (self._gauges, None)
        if engine is not None:
            engine.call_on_loop(lambda: self._note_gauges(engine.gauges()))
        return gauges

    def _note_gauges(self, gauges: list[Gauge]) -> None:
        self._gauges = gauges

    def failures(self) -> list[dict[str, Any]]:
        return self._failures.take()
