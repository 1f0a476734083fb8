"""The fence of a consumer: nothing begins once its group may have given its partitions to others.

Thread: loop; `begin_on_thread` from the lanes' threads, `suspect` from a signal handler.

A member is expelled when its coordinator has not heard of it for a session. A process that was stopped, or a machine
that slept, learns of that only later: so the time since the last heartbeat that was answered is looked at before
records begin. While the fence is shut coroutines in work are cancelled, and their records wait. It opens when the group
has answered again. Owns nothing but the lanes that wait.
"""

from __future__ import annotations

import asyncio
import threading
from math import inf
from typing import Final, Protocol

from multilane.clock import Clock
from multilane.lanes.lane import Lane
from multilane.lanes.threads import NotBegun
from multilane.logs import logger

log = logger(__name__)

_LOOK_EVERY: Final = 0.25  # seconds, beside the looks before records begin


class Deadline(Protocol):
    @property
    def fenced_after(self) -> float:
        """On the clock that counts the time while a process is stopped and a machine sleeps."""


class Fenced(Protocol):
    """A crew."""

    def look_up(self) -> None:
        """Its lanes ask the fence before they begin anything more."""

    def interrupt(self) -> None:
        """What can be cancelled is, and waits."""


class _Never:
    fenced_after = inf


class FenceGuard(Protocol):
    """What a crew knows of a fence."""

    @property
    def is_shut(self) -> bool: ...
    def join(self, pool: Fenced) -> None: ...
    def leave(self, pool: Fenced) -> None: ...
    def check(self) -> bool: ...
    async def opens(self, pool: Fenced) -> None: ...
    def begin_on_thread(self, pool: Fenced, lane: Lane) -> None: ...


class _NoFence:
    """Where nobody can be expelled: always open."""

    is_shut: Final = False

    def join(self, pool: Fenced) -> None:
        return

    leave = join

    def check(self) -> bool:
        return False

    async def opens(self, pool: Fenced) -> None:
        return

    def begin_on_thread(self, pool: Fenced, lane: Lane) -> None:
        lane.begin_call()


NO_FENCE: Final[FenceGuard] = _NoFence()


class Fence:
    """Make it inside the running loop."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._deadline: Deadline = _Never()
        self._pools: set[Fenced] = set()
        self._waiting: dict[asyncio.Future[None], Fenced] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = threading.Event()
        self._is_open.set()

    @property
    def is_shut(self) -> bool:
        return not self._is_open.is_set()

    def watch(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def join(self, pool: Fenced) -> None:
        self._pools.add(pool)
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_EVERY, self._look)

    def leave(self, pool: Fenced) -> None:
        """It drains: its lanes begin nothing more."""
        self._pools.discard(pool)
        for turn in [turn for turn, waiting in self._waiting.items() if waiting is pool]:
            del self._waiting[turn]
            if not turn.done():
                turn.set_exception(NotBegun())

    def _look(self) -> None:
        self._timer = self._loop.call_later(_LOOK_EVERY, self._look) if self._pools else None
        self.check()

    def suspect(self) -> None:
        """The process goes on after a stop: every lane looks before it begins anything."""
        for pool in list(self._pools):
            pool.look_up()
        self._loop.call_soon_threadsafe(self.check)

    # --- before records begin ----------------------------------------------------------------------------------------

    def check(self) -> bool:
        """Whether nothing may begin now."""
        over = self._clock.monotonic() - self._deadline.fenced_after
        if over > 0:
            if self._is_open.is_set():
                self._shut(over)
            return True
        if not self._is_open.is_set():
            self._open()
        return False

    async def opens(self, pool: Fenced) -> None:
        """Waits while it is shut; NotBegun when the crew leaves."""
        while self.check():
            if pool not in self._pools:  # it has left already
                raise NotBegun
            turn: asyncio.Future[None] = self._loop.create_future()
            self._waiting[turn] = pool
            try:
                await turn
            finally:
                self._waiting.pop(turn, None)

    def begin_on_thread(self, pool: Fenced, lane: Lane) -> None:
        """A call is about to begin on this thread: once it may. Not before the loop has opened: what came with the
        answer, as that a partition is wanted back, is heard there first."""
        while self.is_shut or self._clock.monotonic() > self._deadline.fenced_after:
            if pool in self._pools:
                threading.Event().wait(_LOOK_EVERY)
            if pool not in self._pools:
                raise NotBegun
        lane.begin_call()

    def _shut(self, over: float) -> None:
        self._is_open.clear()
        told = (
            "consumer %s: its session or lease expired %.1f s ago without an answered heartbeat. Other members may own "
            "its partitions now. It cancels coroutines and starts no record until a heartbeat is answered"
        )
        log.error(told, self._name, over)
        for pool in list(self._pools):
            pool.look_up()
            pool.interrupt()

    def _open(self) -> None:
        self._is_open.set()
        log.warning("consumer %s: heartbeats are answered again", self._name)
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)
