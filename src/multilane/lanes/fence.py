"""The fence of a consumer: no record begins once the group may have assigned its partitions to other members.

Thread: loop; `begin_on_thread` from the lanes' threads, `recheck` from a signal handler.

A coordinator expels a member that sends no heartbeat for a session. After a process was stopped or a machine slept, the
member notices that only later: so lanes check the time since the last answered heartbeat before they begin records.
While the fence is shut, coroutines in flight are cancelled, and their records wait. It opens when a heartbeat is
answered again. Owns only the lanes that wait.
"""

from __future__ import annotations

import asyncio
import threading
from math import inf
from typing import Final, Protocol

from multilane.clock import Clock
from multilane.lanes.due_timer import Beat
from multilane.lanes.lane import Lane
from multilane.lanes.threads import NotBegun
from multilane.logs import logger

log = logger(__name__)

_CHECK_EVERY: Final = 0.25  # seconds, while it is shut
_LONGEST_CHECK: Final = 1.0  # while it is open, in addition to the checks before records begin


class Deadline(Protocol):
    @property
    def fenced_after(self) -> float:
        """On a clock that also counts while the process is stopped and the machine sleeps."""


class Fenced(Protocol):
    """A lane pool."""

    def look_up(self) -> None:
        """Make its lanes check the fence before they begin another record."""

    def interrupt(self) -> None:
        """Cancel the calls that can be cancelled; their records wait."""


class _Never:
    fenced_after = inf


class FenceGuard(Protocol):
    """The part of a fence that a lane pool uses."""

    @property
    def is_shut(self) -> bool: ...
    @property
    def deadline(self) -> Deadline:
        """For lanes that compare it themselves before each record: a call would cost more. If it is over, they call
        `check`."""
        ...

    def join(self, pool: Fenced) -> None: ...
    def leave(self, pool: Fenced) -> None: ...
    def check(self) -> bool: ...
    async def opens(self, pool: Fenced) -> None: ...
    def begin_on_thread(self, pool: Fenced, lane: Lane) -> None: ...


class _NoFence:
    """For work without a group, which cannot be expelled: always open."""

    is_shut: Final = False
    deadline: Final[Deadline] = _Never()

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
    """Create it inside the running loop."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._deadline: Deadline = _Never()
        self._pools: set[Fenced] = set()
        self._waiting: dict[asyncio.Future[None], Fenced] = {}
        self._beat = Beat.of(_LONGEST_CHECK)
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = threading.Event()
        self._is_open.set()

    @property
    def is_shut(self) -> bool:
        return not self._is_open.is_set()

    @property
    def deadline(self) -> Deadline:
        return self._deadline

    def watch(self, deadline: Deadline) -> None:
        """Before lanes begin."""
        self._deadline = deadline

    def join(self, pool: Fenced) -> None:
        if not self._pools:
            self._beat.join(self._look)
        self._pools.add(pool)

    def leave(self, pool: Fenced) -> None:
        """The pool drains: its lanes begin no more records."""
        self._pools.discard(pool)
        if not self._pools:
            self._beat.leave(self._look)
        for turn in [turn for turn, waiting in self._waiting.items() if waiting is pool]:
            del self._waiting[turn]
            if not turn.done():
                turn.set_exception(NotBegun())

    def _look(self) -> None:
        self.check()
        if self._timer is None:
            self._look_sooner()

    def _look_sooner(self) -> None:
        """The session ends at its deadline or, if a heartbeat is answered, later. The clock of the loop may stand still
        while the machine is suspended, so the deadline alone is not waited for."""
        left = 0.0 if self.is_shut else self._deadline.fenced_after - self._clock.monotonic()
        is_soon = self._pools and left < _LONGEST_CHECK
        self._timer = self._loop.call_later(max(_CHECK_EVERY, left), self._tick) if is_soon else None

    def _tick(self) -> None:
        self.check()
        self._look_sooner()

    def recheck(self) -> None:
        """The process continues after a stop: every lane checks the fence before it begins another record."""
        for pool in list(self._pools):
            pool.look_up()
        self._loop.call_soon_threadsafe(self.check)

    # --- before records begin ----------------------------------------------------------------------------------------

    def check(self) -> bool:
        """Whether the fence is shut now."""
        over = self._clock.monotonic() - self._deadline.fenced_after
        if over > 0:
            if self._is_open.is_set():
                self._shut(over)
            return True
        if not self._is_open.is_set():
            self._open()
        return False

    async def opens(self, pool: Fenced) -> None:
        """Waits while it is shut. Raises NotBegun if the pool leaves."""
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
        """Begin a call on this thread, once the fence is open: not before the loop has opened it. What came with the
        heartbeat's answer, such as a revoked partition, is processed there first."""
        while self.is_shut or self._clock.monotonic() > self._deadline.fenced_after:
            if pool in self._pools:
                threading.Event().wait(_CHECK_EVERY)
            if pool not in self._pools:
                raise NotBegun
        lane.begin_call()

    def _shut(self, over: float) -> None:
        self._is_open.clear()
        log.error(
            "consumer %s: its session or lease expired %.1f s ago without an answered heartbeat. Other members may own "
            "its partitions now. It cancels coroutines and starts no record until a heartbeat is answered",
            *(self._name, over),
        )
        for pool in list(self._pools):
            pool.look_up()
            pool.interrupt()

    def _open(self) -> None:
        self._is_open.set()
        log.warning("consumer %s: heartbeats are answered again", self._name)
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)
