"""An application in a Spark worker whose records are rows of a DataFrame: the composition root there.

Thread: loop.

Owns the lane factories and their progress, which live as long as the worker process; processors live as long as a task.
Never joins a group, reads a topic or commits: only Spark's checkpoint, if there is one, tracks progress.
"""

from __future__ import annotations

from multilane.app.targets import find_app
from multilane.clock import SystemClock
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.engines.dataframe.block_runner import BlockRunner
from multilane.engines.dataframe.record_verdicts import RecordVerdicts
from multilane.engines.dataframe.worker_progress import TaskReport, WorkerProgress
from multilane.errors import ConfigError, WrongRows
from multilane.lanes.assignment import Starts
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.metrics.observer import Gauge
from multilane.runtime.gauges import lane_gauges
from multilane.runtime.handover import NO_HANDOVER
from multilane.runtime.lane_factory import LaneFactory


class DataFrameWorkerApp:
    """Made from `module:name`; tasks name this class by its import path."""

    _progress: WorkerProgress

    def __init__(self, target: str) -> None:
        self._app = find_app(target)
        self._clock = SystemClock()
        self._lane_factories: dict[str, LaneFactory] = {}
        self._open: dict[str, LaneFactory] = {}

    async def begin_task(self, consumer: str, *, in_stream: bool) -> BlockRunner:
        """A block runner for one task."""
        lane_factory = await self._lane_factory(consumer)
        self._progress.begin_task(self._open, self._gauges, in_stream=in_stream)
        known = lane_factory.source.topics.names

        async def build(starts: Starts, verdicts: RecordVerdicts) -> PartitionProcessor:
            unknown = [p.topic for p in starts if p.topic not in known]
            if unknown:
                raise WrongRows(f"a row is from {unknown[0]}: consumer {consumer!r} handles {' and '.join(known)}")
            return await lane_factory.build(starts, NO_HANDOVER, verdicts)

        return BlockRunner(build, self._clock)

    async def end_task(self, total: str | None) -> TaskReport:
        for lane_factory in self._open.values():
            lane_factory.report_calls()
        return self._progress.end_task(self._open, total)

    def _gauges(self) -> list[Gauge]:
        return [gauge for name, factory in self._open.items() for gauge in lane_gauges(name, factory.processors)]

    async def _lane_factory(self, consumer: str) -> LaneFactory:
        if not self._lane_factories:
            self._progress = WorkerProgress(self._app.observer, self._clock)
            with self._app.failures_to(self._progress.failures):
                self._lane_factories = self._app.lane_factories(self._progress.counts, for_rows=True)
        lane_factory = self._lane_factories.get(consumer)
        if lane_factory is None:
            raise ConfigError(f"consumer {consumer!r} has no listener in the application that Spark's workers import")
        if consumer not in self._open:
            await lane_factory.open()
            self._open[consumer] = lane_factory
        return lane_factory

    async def close(self) -> None:
        if self._lane_factories:
            await self._progress.close()
        for lane_factory in self._open.values():
            await lane_factory.close()


def check_stageable(config: ConsumerGroupConfig) -> None:
    """Raise a ConfigError, before anything runs, if the configuration sets an order that a DataFrame cannot keep."""
    is_explicit = config.unique or "retry_order" in config.model_fields_set
    if config.retry_order == "key" and config.retry is not None and is_explicit:
        raise ConfigError(
            f"consumer {config.name!r} has retryOrder: key{' (by uniqueListener)' if config.unique else ''}. To keep "
            "the order of a key across a retry, lanes must read the retry partition as well, but rows of a DataFrame "
            f"come from what Spark has read. {_alternative(config)}, or run the application with `multilane run`"
        )


def _alternative(config: ConsumerGroupConfig) -> str:
    return "Remove its retry topic" if config.unique else "Set retryOrder: none"
