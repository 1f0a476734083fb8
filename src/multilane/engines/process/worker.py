"""One consumer of the configuration, run in this process as a member of its group.

Thread: loop.

A composition root: a lane factory, a consumer, and the pump between them. Owns all three, from start to end of `run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.engines.process.pump import Pump
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.lanes.group_membership import Timing
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Gauge, Observer
from multilane.runtime.gauges import group_gauges, lane_gauges, local_lags
from multilane.runtime.lane_factory import LaneFactory
from multilane.runtime.starting import member_of, opened

log = logger(__name__)


class ProcessGroup:
    """Make it inside the running loop. It runs until `stop`."""

    def __init__(self, lane_factory: LaneFactory, clock: Clock, observer: Observer = NO_OBSERVER) -> None:
        self.config = lane_factory.config
        self._lane_factory = lane_factory
        self._clock = clock
        self._observer = observer
        self._consumer: AsyncConsumer | None = None
        self._pump: Pump | None = None
        self._stopping = asyncio.Event()

    @property
    def processors(self) -> Sequence[PartitionProcessor]:
        return () if self._pump is None else self._pump.processors

    @property
    def settled(self) -> int:
        """Number of settled records."""
        return 0 if self._pump is None else self._pump.settled

    def gauges(self) -> list[Gauge]:
        name, consumer, processors = self.config.name, self._consumer, self.processors
        if consumer is None:
            return lane_gauges(name, processors)
        return lane_gauges(name, processors) + group_gauges(name, consumer, local_lags(consumer, processors))

    async def run(self) -> None:
        config, lane_factory = self.config, self._lane_factory
        topics = lane_factory.source.topics
        try:
            if not await opened(lane_factory, self._clock, self._stopping):
                return
            consumer = await member_of(lane_factory, self._clock, self._observer, self._stopping)
            if consumer is None:
                return
            self._consumer = consumer
            timing = Timing(config.commit_interval, config.rebalance_timeout / 2)
            self._pump = Pump(consumer, topics, lane_factory.build, timing, self._clock, lane_factory.try_write_audit)
            self._pump.set_events(lane_factory.bind_to(consumer, self._observer))
            if self._stopping.is_set():
                self._pump.stop()
            log.info("consumer %s: group %s reads %s", config.name, config.group_id, ", ".join(topics.names))
            await self._pump.run()
        finally:
            self._consumer = None
            await lane_factory.close()

    def on_resume(self) -> None:
        """The process resumes after a stop: no record starts before the fence has checked the membership."""
        self._lane_factory.fence.suspect()

    def apply_overrides(self, overrides: ConsumerOverrides) -> None:
        self._lane_factory.apply_overrides(overrides, self.processors)

    def stop(self) -> None:
        """Settle the records in flight, commit, and leave the group."""
        self._stopping.set()
        if self._pump is not None:
            self._pump.stop()
