"""The process engine: every group and error consumer of an application, on one event loop.

Thread: loop; `stop` from any.

Owns the groups while they run, and the pool of those that are shared. When one fails, shuts down the others and raises
its error: a process that silently does half of its work is worse than one that is restarted. Never runs a user's
function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from multilane.clock import Clock
from multilane.config.sharing_key import SharingKey
from multilane.engines.process.leases import Lease, Leases
from multilane.engines.process.progress import ProcessProgress
from multilane.engines.process.shared_group import SharedGroup
from multilane.engines.process.worker import ProcessGroup
from multilane.error_consumer.wiring import ErrorConsumers
from multilane.errors import ConfigError
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.logs import logger
from multilane.metrics.observer import Gauge, Observer
from multilane.runtime.gauges import client_gauges
from multilane.runtime.group_lanes import GroupLanes
from multilane.runtime.lane_factory import LaneFactory
from multilane.runtime.shared_lanes import SharedLanes

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
        self._clock = clock
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[ProcessGroup, asyncio.Task[None]] = {}
        self._is_running = False
        self._members: list[ProcessGroup] = []  # those that run, or will
        self._leaving: set[ProcessGroup] = set()  # nobody has a lease on them any more
        self._changed = asyncio.Event()
        self.pool: Leases[SharedGroup] = Leases(lambda consumer: consumer.stop())
        self._leases: dict[str, Lease[SharedGroup]] = {}  # by trigger
        self._changing = asyncio.Lock()
        self.consumers: dict[str, LaneFactory] = {}
        planned = list(lanes)
        self._planned = len(planned)
        for each in planned:
            self._take_on(each)
        self.errors = errors
        self._stopped = asyncio.Event()
        self._drain: float | None = None

    def _take_on(self, lanes: GroupLanes) -> None:
        if isinstance(lanes, SharedLanes) and lanes.key is not None:
            for name in lanes.consumers:
                self._leases[name] = self._lease(lanes.key, lanes)
        else:
            self._begin(ProcessGroup(lanes, self._clock, self._observer))
        self.consumers.update(lanes.consumers)

    def _lease(self, key: SharingKey, lanes: SharedLanes) -> Lease[SharedGroup]:
        def make() -> SharedGroup:
            return SharedGroup(lanes, self._clock, self._observer)

        lease = self.pool.acquire(key, make)
        if lease.is_new:
            self._begin(lease.consumer)
        return lease

    def _begin(self, group: ProcessGroup) -> None:
        self._members.append(group)
        group.members = max(self._planned, len(self._members))
        if self._is_running:
            self._tasks[group] = asyncio.create_task(group.run(), name=f"multilane group {group.config.name}")
            self._changed.set()

    @property
    def groups(self) -> Mapping[str, ProcessGroup]:
        """By name: that of a consumer, or those of the triggers that share it."""
        return {group.config.name: group for group in self._members}

    async def run(self, on_begun: Callable[[], object] | None = None) -> None:
        self._is_running = True
        for group in list(self._members):
            self._tasks[group] = asyncio.create_task(group.run(), name=f"multilane group {group.config.name}")
        waiting = asyncio.create_task(self._stopped.wait())
        reporting = (
            None if self._progress is None else asyncio.create_task(self._progress.run(self.consumers, self.gauges))
        )
        try:
            await self.errors.start()
            if on_begun is not None:
                on_begun()
            await self._until_one_ends(waiting)
        finally:
            self._is_running = False
            waiting.cancel()
            try:
                await self._end()
            finally:
                if reporting is not None and self._progress is not None:
                    reporting.cancel()
                    self._progress.close(self.consumers)

    async def _until_one_ends(self, stopped: asyncio.Task[bool]) -> None:
        """A group that is left ends by itself, and the others go on."""
        while not stopped.done():
            self._changed.clear()
            staying = [task for group, task in self._tasks.items() if group not in self._leaving]
            if any(task.done() for task in staying):
                return
            changed = asyncio.create_task(self._changed.wait())
            await asyncio.wait([*staying, stopped, changed], return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()

    # --- consumers that come and go ----------------------------------------------------------------------------------

    async def subscribe(self, factory: LaneFactory, key: SharingKey | None) -> None:
        """Run another consumer. `key`: whoever has the same one shares with it; None: it shares with nobody."""
        name = factory.config.name
        async with self._changing:
            if not self._is_running or self._stopped.is_set():
                raise ConfigError(f"consumer {name!r} cannot subscribe: the application is stopping")
            if key is None or key not in self.pool.consumers:
                self._take_on(factory if key is None else SharedLanes([factory], self._clock, key))
                return
            lease = self.pool.acquire(key, lambda: self._gone(key))
            try:
                await lease.consumer.add(factory)
            except BaseException:
                lease.release()
                raise
            self._leases[name] = lease
            self.consumers[name] = factory

    def _gone(self, key: SharingKey) -> SharedGroup:
        raise ConfigError(f"the shared consumer {key} has just ended: subscribe again")

    async def unsubscribe(self, name: str) -> None:
        """The consumer finishes its records in flight and leaves for good."""
        async with self._changing:
            lease = self._leases.get(name)
            if lease is not None and not lease.is_last:
                await lease.consumer.remove(name)
                lease.release()
            else:
                await self._leave(self._of(name), lease, name)
            self._leases.pop(name, None)
            self.consumers.pop(name, None)

    async def _leave(self, group: ProcessGroup, lease: Lease[SharedGroup] | None, name: str) -> None:
        """End a group with its last consumer."""
        self._leaving.add(group)
        self._changed.set()
        if lease is None:
            group.stop()
        else:
            await lease.consumer.retire(name)
            lease.release()
        try:
            if group in self._tasks:
                await asyncio.shield(self._tasks[group])
        finally:
            self._leaving.discard(group)
            self._members.remove(group)
            self._tasks.pop(group, None)

    def _of(self, name: str) -> ProcessGroup:
        found = next((group for group in self._members if name in group.consumers), None)
        if found is None:
            raise ConfigError(f"consumer {name!r} does not run")
        return found

    def gauges(self) -> list[Gauge]:
        """On the loop's thread."""
        return [*client_gauges(), *(gauge for group in self._members for gauge in group.gauges())]

    def on_resume(self) -> None:
        """The process was stopped and resumes (SIGCONT). Called by a signal handler on the loop's thread."""
        for group in self._members:
            group.on_resume()

    def stop(self, drain: float | None = None) -> None:
        """From any thread. `drain`: how many seconds records in flight have, if not as configured."""

        def begin() -> None:
            self._drain = drain
            self._stopped.set()

        self.call_on_loop(begin)

    @property
    def left(self) -> dict[str, int]:
        """How many records of each consumer came and were not settled when they were given up."""
        return {name: factory.left for name, factory in self.consumers.items()}

    def apply_overrides(self, consumer: str, overrides: ConsumerOverrides) -> None:
        """From any thread."""
        factory = self.consumers.get(consumer)
        if factory is not None:  # else it is about to begin, with these overrides
            self.call_on_loop(lambda: factory.apply_overrides(overrides, factory.processors))

    def call_on_loop(self, function: Callable[[], object]) -> None:
        """Have the loop call this function; from any thread."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            return  # the loop is closed: the engine has ended

    async def _end(self) -> None:
        for group in self._members:
            group.stop(self._drain)
        await self._shielded(self.errors.stop())
        ended = await self._shielded(asyncio.gather(*self._tasks.values(), return_exceptions=True))
        failures = [error for error in ended if isinstance(error, BaseException)]
        for other in failures[1:]:
            log.error("another group failed too: %s", other)
        if failures:
            raise failures[0]

    async def _shielded(self, ending: Awaitable[object]) -> list[object]:
        """Finish the shutdown even if the waiting task is cancelled."""
        result = await asyncio.shield(asyncio.ensure_future(ending))
        return list(result) if isinstance(result, list) else []
