"""The process engine: every group and error consumer of an application, on one event loop.

Thread: loop; `stop` from any.

Owns the groups while they run. When one fails the others are ended in order, and its error is raised: a process that
does half of its work without anybody knowing is worse than one that is started again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from multilane.clock import Clock
from multilane.engines.process.progress import ProcessProgress
from multilane.engines.process.worker import ProcessGroup
from multilane.error_consumer.wiring import ErrorConsumers
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.logs import logger
from multilane.metrics.observer import Observer
from multilane.runtime.lane_factory import LaneFactory

log = logger(__name__)


class ProcessEngine:
    """Make it inside the running loop."""

    def __init__(
        self,
        lane_factories: Mapping[str, LaneFactory],
        errors: ErrorConsumers,
        clock: Clock,
        observer: Observer,
        watch: ProcessProgress | None = None,
    ) -> None:
        """`watch` logs how the run goes; None: somebody else does."""
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self.groups = {
            name: ProcessGroup(lane_factory, clock, observer) for name, lane_factory in lane_factories.items()
        }
        self.errors = errors
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        tasks = [
            asyncio.create_task(group.run(), name=f"multilane group {name}") for name, group in self.groups.items()
        ]
        waiting = asyncio.create_task(self._stopped.wait())
        watching = None if self._watch is None else asyncio.create_task(self._watch.run(self.groups))
        try:
            await self.errors.start()
            await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            try:
                await self._end(tasks)
            finally:
                if watching is not None and self._watch is not None:
                    watching.cancel()
                    self._watch.close(self.groups)

    def look_up(self) -> None:
        """The process goes on after a stop; from a signal handler on the loop's thread."""
        for group in self.groups.values():
            group.look_up()

    def stop(self) -> None:
        self.on_loop(self._stopped.set)

    def steer(self, consumer: str, steering: ConsumerOverrides) -> None:
        """From any thread."""
        self.on_loop(lambda: self.groups[consumer].steer(steering))

    def on_loop(self, what: Callable[[], object]) -> None:
        """Have the loop call this; from any thread."""
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:
            return  # the loop is closed: it has ended already

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for group in self.groups.values():
            group.stop()
        await self._shielded(self.errors.stop())
        ended = await self._shielded(asyncio.gather(*tasks, return_exceptions=True))
        failures = [error for error in ended if isinstance(error, BaseException)]
        for other in failures[1:]:
            log.error("another group failed too: %s", other)
        if failures:
            raise failures[0]

    async def _shielded(self, ending: Awaitable[object]) -> list[object]:
        """The end goes on when whoever waits for it is cancelled."""
        result = await asyncio.shield(asyncio.ensure_future(ending))
        return list(result) if isinstance(result, list) else []
