"""An application in a Spark worker whose records come as rows of a DataFrame: the composition root there.

Thread: loop.

Outfits live as long as the worker process does, teams as long as a task. It joins no group, reads nothing and commits
nothing: what is done is known to Spark's checkpoint, if to anybody.
"""

from __future__ import annotations

from multilane.app.targets import find_app
from multilane.clock import SystemClock
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.engines.dataframe.block_runner import BlockRunner
from multilane.engines.dataframe.record_verdicts import RecordVerdicts
from multilane.errors import ConfigError, WrongRows
from multilane.lanes.assignment import Starts
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.runtime.handover import NO_HANDOVER
from multilane.runtime.lane_factory import LaneFactory


class DataFrameWorkerApp:
    """Made from `module:name`; tasks name this class by its import path."""

    def __init__(self, target: str) -> None:
        self._app = find_app(target)
        self._clock = SystemClock()
        self._made: dict[str, LaneFactory] = {}
        self._open: dict[str, LaneFactory] = {}

    async def block_runner(self, consumer: str) -> BlockRunner:
        """For one task."""
        lane_factory = await self._lane_factory(consumer)
        known = lane_factory.source.topics.names

        async def build(starts: Starts, verdicts: RecordVerdicts) -> PartitionProcessor:
            unknown = [p.topic for p in starts if p.topic not in known]
            if unknown:
                raise WrongRows(f"a row is of {unknown[0]}: consumer {consumer!r} is for {' and '.join(known)}")
            return await lane_factory.build(starts, NO_HANDOVER, verdicts)

        return BlockRunner(build, self._clock)

    async def _lane_factory(self, consumer: str) -> LaneFactory:
        if not self._made:
            self._made = self._app.lane_factories(for_rows=True)
        lane_factory = self._made.get(consumer)
        if lane_factory is None:
            raise ConfigError(f"consumer {consumer!r} has no listener where Spark's workers find the application")
        if consumer not in self._open:
            await lane_factory.open()
            self._open[consumer] = lane_factory
        return lane_factory

    async def close(self) -> None:
        for lane_factory in self._open.values():
            await lane_factory.close()


def check_stageable(config: ConsumerGroupConfig) -> None:
    """What a stage cannot promise is refused before anything runs, where somebody has asked for it."""
    is_asked_for = config.unique or "retry_order" in config.model_fields_set
    if config.retry_order == "key" and config.retry is not None and is_asked_for:
        raise ConfigError(
            f"consumer {config.name!r} has retryOrder key{' (as uniqueListener)' if config.unique else ''}: to keep "
            "the order of a key across a retry, lanes have to read the retry partition beside the topic's own, and "
            f"rows of a DataFrame come from whatever Spark has read. {_instead(config)}, or run the application with "
            "`multilane run`"
        )


def _instead(config: ConsumerGroupConfig) -> str:
    return "Leave out its retry topic" if config.unique else "Set retryOrder none"
