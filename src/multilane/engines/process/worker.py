"""One member of a group in this process, for one consumer of the configuration.

Thread: loop.

A composition root: lanes, a consumer, and the pump between them. Owns all three, from start to end of `run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.engines.process.pump import Pump
from multilane.lanes.group_membership import Timing
from multilane.lanes.shared_processor import SharedProcessor
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Gauge, Observer
from multilane.runtime.beside_member import beside_member
from multilane.runtime.gauges import (
    age_gauges,
    detached_gauges,
    group_gauges,
    lane_gauges,
    local_lags,
    unit_gauges,
)
from multilane.runtime.group_lanes import GroupLanes, MemberSettings
from multilane.runtime.lane_factory import LaneFactory
from multilane.runtime.starting import member_of, opened
from multilane.types import TopicPartition

log = logger(__name__)


class ProcessGroup:
    """Make it inside the running loop. It runs until `stop`."""

    def __init__(self, lanes: GroupLanes, clock: Clock, observer: Observer = NO_OBSERVER) -> None:
        self._lanes = lanes
        self._clock = clock
        self._observer = observer
        self.members = 1  # of all groups of the app in this process
        self._consumer: AsyncConsumer | None = None
        self._pump: Pump | None = None
        self._stopping = asyncio.Event()
        self._drain: float | None = None

    @property
    def config(self) -> MemberSettings:
        return self._lanes.config

    @property
    def consumers(self) -> Mapping[str, LaneFactory]:
        return self._lanes.consumers

    def gauges(self) -> list[Gauge]:
        gauges: list[Gauge] = []
        ends = {} if self._pump is None else {p: each.end(p) for each in self._pump.processors for p in each.partitions}
        lags: dict[str, Mapping[TopicPartition, int | None]] = {}
        for name, factory in self._lanes.consumers.items():
            gauges += lane_gauges(name, factory.processors)
            gauges += age_gauges(name, factory.processors, self._clock.wall())
            if self._consumer is not None:
                lags[name] = local_lags(self._consumer, factory.processors, ends)
                gauges += group_gauges(name, self._consumer, lags[name])
        if self._pump is not None and lags:
            gauges += unit_gauges(self.config.group_id, lags, self._lanes.source.topics.from_beginning)
            gauges += detached_gauges(p for p in self._pump.processors if isinstance(p, SharedProcessor))
        return gauges

    async def run(self) -> None:
        try:
            if await opened(self._lanes, self._clock, self._stopping):
                await self._take_part()
        finally:
            await self._lanes.close()

    async def _take_part(self) -> None:
        """As one member, from its start to its end."""
        consumer = await member_of(self._lanes, self._clock, self._observer, self._stopping, self.members)
        if consumer is None:
            return
        try:
            self._consumer = consumer
            self._pump = self._pump_of(consumer)
            if self._stopping.is_set():
                self._pump.stop(self._drain)
            topics = ", ".join(self._lanes.source.topics.names)
            log.info("consumer %s: group %s reads %s", self.config.name, self.config.group_id, topics)
            on_committed = self._pump.on_committed
            async with beside_member(self._lanes, consumer, on_committed, self._clock, self._observer):
                await self._pump.run()
        finally:
            self._consumer = self._pump = None

    def _pump_of(self, consumer: AsyncConsumer) -> Pump:
        lanes, config = self._lanes, self.config
        timing = Timing(config.commit_interval, config.rebalance_timeout / 2)
        pump = Pump(consumer, lanes.source.topics, lanes.build, timing, self._clock, lanes.try_write_audit)
        pump.set_events(lanes.bind_to(consumer, self._observer))
        return pump

    def on_resume(self) -> None:
        self._lanes.on_resume()

    def stop(self, drain: float | None = None) -> None:
        """Settle the records in flight, commit, and leave the group. `drain`: how many seconds these records have, if
        not as configured."""
        self._drain = drain
        self._stopping.set()
        if self._pump is not None:
            self._pump.stop(drain)
