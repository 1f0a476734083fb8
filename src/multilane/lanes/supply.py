"""The records that a lane pool is supplied with: takes them in when lanes run low, and wakes idle lanes for them.

Thread: loop.

Idle lanes wait; new records wake as many lanes as there is work for. Windows that are not full wait for their latency,
deferred records for their time. Owns the idle lanes and both timers. Never takes a record for a lane.
"""

from __future__ import annotations

from collections.abc import Callable

from multilane.clock import Clock
from multilane.lanes.due_timer import DueTimer
from multilane.lanes.gate import brings_first
from multilane.lanes.partition_queue import PartitionQueue
from multilane.lanes.waiting_lanes import IdleLanes
from multilane.lanes.waiting_records import WaitingRecords
from multilane.listeners.window import Window


class LaneSupply:
    def __init__(self, queue: PartitionQueue, chains: WaitingRecords, window: Window, clock: Clock) -> None:
        self.idle = IdleLanes()
        self.peers: list[LaneSupply] = []  # of the same queue: one may take in records for another
        self.feeds: list[Callable[[], None]] = [self.feed]  # of this one and its peers
        self.on_wants_blocks: Callable[[], object] = lambda: None
        self._queue = queue
        self._chains = chains
        # Of lanes that take one record at a time: the chains, and those of them that are ready, for every record looks.
        self.singles = chains.singles if window.is_single else None
        self._ready = None if self.singles is None else self.singles.ready
        self._window = window
        self._clock = clock
        self._low = 0  # with fewer takeable records more are taken in
        self._flushes = False  # windows that are not full are handled
        self._is_over = False
        self._flush_timer = DueTimer(self.flush, clock)
        self._due_timer = DueTimer(self.wake_deferred, clock)
        chains.on_defer = self._due_timer.set  # a timer, because all lanes may be busy for a long time

    def set_lanes(self, lanes: int) -> None:
        self._low = 2 * self._window.size if self._ready is None else 2 * lanes

    def share(self, peers: list[LaneSupply]) -> None:
        """These have the same queue."""
        self.peers += peers
        self.feeds += [peer.feed for peer in peers]

    # --- what lanes ask ----------------------------------------------------------------------------------------------

    async def work_comes(self) -> bool:
        """Take in records, or wait until there are some. Returns whether it has waited: others had their turn."""
        if self._refill(self._wants_more):
            return False
        if self._ready is None:
            self._set_flush_timer()
        await self.idle.wait()
        return True

    def has_work(self, failed: bool | None) -> bool:
        """Whether there is a record to begin: see `HasWork` in `gate`."""
        has_any = self._work_for() > 0 or (self._refill(self._wants_more) and self._work_for() > 0)
        return has_any and (failed is None or brings_first(self._chains, self._refill, failed=failed))

    def has_ready(self) -> bool:
        """Whether a lane could take records now, without taking in any."""
        return self._work_for() > 0

    def has_window(self) -> bool:
        """Whether a window is full, or need not be."""
        if self._chains.takeable < self._window.size:
            self._refill(self._wants_more)
        takeable = self._chains.takeable
        if takeable >= self._window.size:
            return True
        if takeable == 0:
            self._flushes = False
        return self._flushes and takeable > 0

    def wake_lanes(self, besides: int = 0) -> None:
        """Wake as many lanes as there is work for; `besides`: so many that are awake have some of it."""
        self.idle.wake(self._work_for() - besides)

    # --- what comes --------------------------------------------------------------------------------------------------

    def feed(self) -> None:
        """The queue has new records, or room for some."""
        if self.idle:
            self._refill(self._wants_more)

    def poke(self) -> None:
        """There may be work for idle lanes."""
        if self.idle:
            self.idle.wake(self._work_for())
            if self._ready is None:
                self._set_flush_timer()

    def flush(self) -> None:
        """Handle windows that are not full: their latency is over, or no more records will come."""
        self._flushes = True
        self.idle.wake_all()

    def wake_deferred(self) -> None:
        due = self._chains.wake(self._clock.monotonic())
        self.idle.wake(self._work_for())
        self._set_flush_timer()
        if due is not None:
            self._due_timer.set(due)

    def end(self) -> None:
        """Take in no more records; all idle lanes wake and find out."""
        self._is_over = True
        self._due_timer.end()
        self._flush_timer.end()
        self.idle.wake_all()

    def _refill(self, wanted: Callable[[], bool]) -> bool:
        if self._is_over or not wanted():
            return False
        came = self._queue.refill(wanted, self._clock.monotonic())
        if came:
            self.poke()
            for peer in self.peers:
                peer.poke()
        self.on_wants_blocks()
        return came

    def _wants_more(self) -> bool:
        waiting = self._chains.takeable if self._ready is None else len(self._ready)
        return waiting < self._low

    def _work_for(self) -> int:
        """How many lanes there is work for."""
        if self._ready is not None:
            return len(self._ready)
        full, rest = divmod(self._chains.takeable, self._window.size)
        return full + (1 if rest and self._flushes else 0)

    def _set_flush_timer(self) -> None:
        if self._ready is None and self._chains.takeable:
            self._flush_timer.set(self._clock.monotonic() + self._window.latency)
