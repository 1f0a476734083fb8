"""The process engine: every group and error consumer of an application, on one event loop.

Thread: loop; `stop` from any.

Owns the groups while they run. When one fails, shuts down the others and raises its error: a process that silently
does half of its work is worse than one that is restarted. Never runs a user's function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from multilane.clock import Clock
from multilane.engines.process.progress import ProcessProgress
from multilane.engines.process.worker import ProcessGroup
from multilane.error_consumer.wiring import ErrorConsumers
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.logs import logger
from multilane.metrics.observer import Gauge, Observer
from multilane.runtime.gauges import client_gauges
from multilane.runtime.group_lanes import GroupLanes

log = logger(__name__)


class ProcessEngine:
    """Make it inside the running loop."""

    def __init__(
        self,
        lanes: Iterable[GroupLanes],
        errors: ErrorConsumers,
        clock: Clock,
        observer: Observer,
        progress: ProcessProgress | None = None,
    ) -> None:
        """`lanes` of each group member. `progress` logs the progress of the run; None if the caller does."""
        self._progress = progress
        self._loop = asyncio.get_running_loop()
        members = list(lanes)
        self.groups = {member.config.name: ProcessGroup(member, clock, observer) for member in members}
        self.consumers = {name: factory for member in members for name, factory in member.consumers.items()}
        self.errors = errors
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        tasks = [
            asyncio.create_task(group.run(), name=f"multilane group {name}") for name, group in self.groups.items()
        ]
        waiting = asyncio.create_task(self._stopped.wait())
        reporting = (
            None if self._progress is None else asyncio.create_task(self._progress.run(self.consumers, self.gauges))
        )
        try:
            await self.errors.start()
            await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            try:
                await self._end(tasks)
            finally:
                if reporting is not None and self._progress is not None:
                    reporting.cancel()
                    self._progress.close(self.consumers)

    def gauges(self) -> list[Gauge]:
        """On the loop's thread."""
        return [*client_gauges(), *(gauge for group in self.groups.values() for gauge in group.gauges())]

    def on_resume(self) -> None:
        """The process was stopped and resumes (SIGCONT). Called by a signal handler on the loop's thread."""
        for group in self.groups.values():
            group.on_resume()

    def stop(self) -> None:
        self.call_on_loop(self._stopped.set)

    def apply_overrides(self, consumer: str, overrides: ConsumerOverrides) -> None:
        """From any thread."""
        factory = self.consumers[consumer]
        self.call_on_loop(lambda: factory.apply_overrides(overrides, factory.processors))

    def call_on_loop(self, function: Callable[[], object]) -> None:
        """Have the loop call this function; from any thread."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            return  # the loop is closed: the engine has ended

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
        """Finish the shutdown even if the waiting task is cancelled."""
        result = await asyncio.shield(asyncio.ensure_future(ending))
        return list(result) if isinstance(result, list) else []
