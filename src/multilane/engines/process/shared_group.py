"""A group member that several triggers share. Triggers come and go while it runs, and it outlives its consumer.

Thread: loop.

A trigger that changes nothing about the membership is attached to the partitions between two polls; one with topics or
settings of its own makes the member join its group again. After a fatal error it makes a new consumer, with back-off,
and every trigger goes on at its own position. Owns the lanes, and what was settled when a consumer ended. Errors of the
configuration, and of triggers that are to end the app, are raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.engines.process.pump import Pump
from multilane.engines.process.worker import ProcessGroup
from multilane.errors import (
    AuditNotWritten,
    BreakerOpen,
    ClientFailed,
    ConfigError,
    MultilaneError,
    OperationTimeout,
)
from multilane.lanes.kept_starts import KeptStarts
from multilane.lanes.shared_processor import SharedProcessor
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.runtime.lane_factory import LaneFactory
from multilane.runtime.restarts import Restarts
from multilane.runtime.shared_lanes import SharedLanes
from multilane.runtime.starting import opened

log = logger(__name__)

_ENDS_THE_APP = (ConfigError, BreakerOpen, AuditNotWritten)


class SharedGroup(ProcessGroup):
    """Make it inside the running loop. It runs until `stop`."""

    def __init__(self, lanes: SharedLanes, clock: Clock, observer: Observer = NO_OBSERVER) -> None:
        super().__init__(lanes, clock, observer)
        self._shared = lanes
        self._kept = KeptStarts()
        self._restarts = Restarts()
        self._has_joined = False
        self._latest: Pump | None = None
        self._joins_again = False
        self._departed: list[str] = []  # they leave between two memberships
        self._ended = asyncio.Event()  # the current membership
        self._changing = asyncio.Lock()

    @property
    def triggers(self) -> tuple[str, ...]:
        return tuple(self._shared.consumers)

    # --- its life ----------------------------------------------------------------------------------------------------

    async def _take_part(self) -> None:
        while not self._stopping.is_set():
            self._joins_again = False
            self._restarts.start(self._clock.monotonic())
            try:
                await self._live()
            except Exception as error:
                if self._stopping.is_set() or not self._may_go_on(error):
                    raise
                await self._wait_after(error)
            else:
                if not self._joins_again:
                    return
            while self._departed:
                await self._shared.remove(self._departed.pop())

    async def _live(self) -> None:
        try:
            await super()._take_part()
        finally:
            self._ended.set()

    def _pump_of(self, consumer: AsyncConsumer) -> Pump:
        pump = super()._pump_of(consumer)
        pump.keep_starts(self._kept)
        self._shared.on_cut, self._shared.on_failure = pump.cut, pump.fail
        self._ended, self._latest = asyncio.Event(), pump
        if self._joins_again:  # a trigger came while this consumer was made
            pump.stop()
        return pump

    def _may_go_on(self, error: Exception) -> bool:
        """Before it was ever a member, an error of the brokers most likely is one of the configuration."""
        if isinstance(error, _ENDS_THE_APP):
            return False
        self._has_joined |= self._latest is not None and self._latest.has_joined
        return self._has_joined or isinstance(error, ClientFailed) or not isinstance(error, MultilaneError)

    async def _wait_after(self, error: Exception) -> None:
        wait = self._restarts.wait_after_death(self._clock.monotonic())
        is_unexpected = not isinstance(error, MultilaneError)
        for name in self.triggers:
            log.error(
                "trigger %s: the consumer that it shares failed: %s: %s. A new one takes its place in %g s, and the "
                "trigger goes on at its own position",
                *(name, type(error).__name__, error, wait),
                exc_info=error if is_unexpected and name == self.triggers[0] else None,
            )
            self._observer.count("sharing.replaced", consumer=name)
        stopped = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([stopped], timeout=wait)
        stopped.cancel()

    def _join_again(self) -> None:
        self._joins_again = True
        if self._pump is not None:
            self._pump.stop()

    # --- triggers that come and go -----------------------------------------------------------------------------------

    async def add(self, factory: LaneFactory) -> None:
        """When it returns, the trigger takes part in the partitions that are read here, or the member joins its group
        again with it."""
        async with self._changing:
            if not await opened(factory, self._clock, self._stopping):
                return
            try:
                joins_again = self._shared.add(factory)
            except ConfigError:
                await factory.close()
                raise
            name = factory.config.name
            log.info("trigger %s joins %s", name, self.config.name)
            if joins_again:
                self._join_again()
                return
            try:
                await self._between_polls(lambda pump: self._attach(pump, name))
            except BaseException:
                await self._remove(name)
                raise

    async def _attach(self, pump: Pump, name: str) -> None:
        topic = self._shared.consumers[name].config.topic
        for processor in pump.processors:
            is_its = isinstance(processor, SharedProcessor) and processor.partition.topic == topic
            if isinstance(processor, SharedProcessor) and is_its and name not in processor.triggers:
                await self._shared.attach(processor, pump.start_of(processor, processor.partition), name)

    async def _between_polls(self, change: Callable[[Pump], Awaitable[None]]) -> None:
        """If the membership ends before the change is made, the next one begins with it."""
        pump, ended = self._pump, self._ended
        if pump is None:
            return
        done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        async def chore() -> None:
            failure: Exception | None = None
            try:
                await change(pump)
            except Exception as error:
                failure = error
                if isinstance(error, MultilaneError) and error.fatal:
                    raise
            if isinstance(failure, MultilaneError) and (failure.retriable or isinstance(failure, OperationTimeout)):
                log.warning("cannot change the triggers of %s yet, retrying: %s", self.config.name, failure)
                pump.between_polls(chore)
            elif not done.done():
                done.set_result(failure)

        pump.between_polls(chore)
        over = asyncio.ensure_future(ended.wait())
        either: list[asyncio.Future[Any]] = [done, over]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        failure = done.result() if done.done() else None
        if failure is not None:
            raise failure

    async def remove(self, name: str) -> None:
        """A trigger leaves for good, but not the last one: its records in flight end, and commits forget it."""
        async with self._changing:
            await self._remove(name)

    async def retire(self, name: str) -> None:
        """The last trigger leaves for good: it leaves its position to the group. Stop the consumer after this."""
        async with self._changing:
            await self._release(name)

    async def _release(self, name: str) -> None:
        pump, config = self._pump, self._shared.consumers[name].config
        if pump is not None:
            deadline = self._clock.monotonic() + config.rebalance_timeout / 2
            shared = [p for p in pump.processors if isinstance(p, SharedProcessor)]
            await asyncio.gather(*(processor.release(name, deadline) for processor in shared))

    async def _remove(self, name: str) -> None:
        factory = self._shared.consumers[name]
        joins_again = self._shared.joins_again_without(name)
        if not joins_again:
            self._shared.leave(name)
        await self._release(name)
        if joins_again and self._pump is not None:
            self._departed.append(name)
            ended = self._ended
            self._join_again()
            await ended.wait()
        else:
            await self._shared.remove(name)
        retry = "" if factory.config.retry is None else f". Its retry topic {factory.config.retry} is read no longer"
        log.info("trigger %s has left %s: commits no longer wait for it%s", name, self.config.name, retry)
