"""The lanes of a partition queue: tasks that take records, run the user's function, and release their keys.

Thread: loop.

A lane is a loop, so that a function that never waits never touches the event loop. One sweep finds
calls that take too long: a timer for each call would cost more than most calls. Owns its lanes. Never commits, never
settles (see `work`) and never takes records in (see `supply`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any, Final

from multilane.clock import Clock
from multilane.errors import PublishStopped
from multilane.lanes.begun import IDLE
from multilane.lanes.chains import Chains
from multilane.lanes.due_timer import Beat
from multilane.lanes.lane import Lane, LaneTask, lanes_end
from multilane.lanes.overdue import Overdue
from multilane.lanes.partition_queue import PartitionQueue
from multilane.lanes.supply import LaneSupply
from multilane.lanes.threads import NotBegun
from multilane.lanes.waiting_lanes import RetryWaits
from multilane.lanes.waiting_records import WaitingRecords
from multilane.lanes.work import Work
from multilane.logs import logger
from multilane.outcome.in_place import rests_until
from multilane.wire.records.record import Record

log = logger(__name__)

_TURN: Final = 64  # records that a lane handles before other tasks get the loop
_TURN_OF_ROWS: Final = 512  # in windows
_TAKEN_TOGETHER: Final = 256  # the same for records that it takes together
_GRACE: Final = 1.0  # seconds for cancelled functions to end
_SHORTEST_SWEEP: Final = 0.01
_FOLLOWERS: Final = 500  # records of a key that go to the retry topic together


class LanePool:
    def __init__(self, queue: PartitionQueue, chains: WaitingRecords, work: Work, lanes: int, clock: Clock) -> None:
        self._queue = queue
        self._chains = chains
        self._work = work
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # the context that every call starts with
        self._lanes: set[Lane] = set()
        self.supply = LaneSupply(queue, chains, work.window, clock)
        # Its own, because every record looks at them.
        self._idle = self.supply.idle
        self._peers = self.supply.peers
        self._feeds = self.supply.feeds
        self._rests = RetryWaits(clock)  # for lanes with rows that are retried in place
        self._overdue = Overdue(queue, work, clock, self.supply.has_ready, self._add_substitute)
        self._is_draining = False
        self._must_check = False  # lanes have to check `_stays` before they take more records
        self._size = work.window.size
        self._has_more_lanes_than_threads = work.has_more_lanes_than_threads and work.window.is_single
        self._watch = work.watch
        self._gate = work.gate
        self._gate.join(self)
        self._fence = work.fence
        self._fence.join(self)
        self._is_direct = work.may_call_directly
        self._sweeps = Beat.of(max(_SHORTEST_SWEEP, work.max_processing_time / 4))
        self._sweeps.join(self._sweep)
        self.on_failure: Callable[[BaseException], object] = lambda error: None
        self._watch.isolation.join(self)
        self.resize(lanes)

    # --- lanes -------------------------------------------------------------------------------------------------------

    def resize(self, lanes: int) -> None:
        """Change the number of lanes. Surplus lanes end after their current record."""
        self._wanted = max(1, lanes)
        # A thread that is done finds its next record waiting: going through the loop would be too slow.
        self._lanes_beyond_threads = max(1, self._wanted // 2) if self._has_more_lanes_than_threads else 0
        self._allow_threads()
        self.supply.set_lanes(self._wanted)
        while len(self._lanes) < self._wanted + self._lanes_beyond_threads + self._overdue.substitutes:
            self._spawn(Lane())
        self.count_lanes()
        self._idle.wake_all()

    def _allow_threads(self) -> None:
        if self._has_more_lanes_than_threads:
            self._work.listener.limit_threads(self._wanted + self._overdue.substitutes)

    def count_lanes(self) -> None:
        """Whether lanes must check before they continue: some are surplus, must wait, or must change their loop."""
        self._has_surplus = len(self._lanes) > self._wanted + self._lanes_beyond_threads + self._overdue.substitutes
        must_check = self._is_draining or self._gate.is_shut or self._fence.is_shut or self._has_surplus
        self._must_check = must_check or any(lane.is_direct != self._is_direct for lane in self._lanes)

    def choose_loop(self) -> None:
        """Use the shortest loop unless some records must be handled alone. Lanes change their loop between calls."""
        self._is_direct = self._work.may_call_directly
        self.count_lanes()
        self._idle.wake_all()

    async def _stays(self, lane: Lane) -> bool:
        """Whether this lane continues. Waits while the fence or the outage gate is shut."""
        self._watch.marks.words[lane.slot] = IDLE
        await self._fence.opens(self)
        await self._gate.turn(self, lane, self.supply.has_work)
        return not self._leaves(lane)

    @property
    def in_flight(self) -> tuple[Record, ...]:
        """The records of all lanes. The next owner of the partition gets them if they are abandoned."""
        return tuple(record for lane in self._lanes for record in lane.records)

    @property
    def calling(self) -> list[Lane]:  # hung calls included
        return [lane for lane in self._lanes if lane.is_calling]

    def _spawn(self, lane: Lane) -> None:
        """A new lane, or a new task for one."""
        if lane not in self._lanes:
            self._lanes.add(lane)
            lane.slot = self._watch.marks.take_slot()
        self._watch.end(lane.slot)  # the shortest loop leaves its last offset there
        lane.is_direct = self._is_direct
        lane.task = task = LaneTask(self._body(lane), lane, self._loop, self._context.copy())
        task.add_done_callback(lambda _: self._ended(lane, task))

    def _body(self, lane: Lane) -> Coroutine[Any, Any, None]:
        chains = self.supply.singles
        if chains is None:
            return self._by_windows(lane)
        if not lane.is_direct:
            return self._singly(lane, chains)
        return (
            self._whole_chain(lane, chains)
            if chains.is_one and not self._has_more_lanes_than_threads
            else self._directly(lane, chains)
        )

    def _leaves(self, lane: Lane) -> bool:
        """Whether this lane ends now. It is removed at once, so that no more lanes end than have to."""
        self.count_lanes()
        if self._is_draining or self._has_surplus:
            self._lanes.discard(lane)
            self.count_lanes()
            self.supply.wake_lanes()  # the other lanes take over the keys that it released
            return True
        if lane.is_direct != self._is_direct:
            self._spawn(lane)
            self.count_lanes()
            return True
        return False

    def _ended(self, lane: Lane, task: asyncio.Task[None]) -> None:
        if lane.task is not task:
            return  # it continues as another task
        self._lanes.discard(lane)
        self._watch.marks.give_slot(lane.slot)
        self.count_lanes()
        self._gate.lost(lane)
        error: BaseException | None = None
        if not task.cancelled():
            error = task.exception()
        elif not self._is_draining:
            error = RuntimeError(f"a lane of {self._queue} was cancelled from outside")
        if error is not None and not isinstance(error, PublishStopped | NotBegun):
            self.on_failure(error)

    # --- the loops of a lane -----------------------------------------------------------------------------------------

    async def _directly(self, lane: Lane, chains: Chains) -> None:
        """One record at a time, with nothing between a record and its function: the loop that has to be short."""
        work, clock, work_comes = self._work, self._clock.monotonic, self.supply.work_comes
        settle, ready, defers = work.direct_settle, chains.ready, chains.defers
        cancels, begins_on_thread = work.listener.cancels, self._has_more_lanes_than_threads
        begin = partial(self._fence.begin_on_thread, self, lane)
        call = work.listener.call_with_start(begin) if begins_on_thread else work.direct_call
        words, slot, left, deadline = self._watch.marks.words, lane.slot, _TURN, self._fence.deadline
        while not self._must_check or await self._stays(lane):
            if not ready:
                words[slot] = IDLE
                await work_comes()
                continue
            if clock() > deadline.fenced_after and self._fence.check():  # the clock may have gone on before any record
                continue
            record = chains.take_one()
            words[slot] = offset = record.offset  # in the begun table, before the call: without a system call
            lane.record = record
            lane.cancels = cancels
            if not begins_on_thread:
                lane.calls += 1
                lane.is_calling = True
            try:
                await call(record)
            except BaseException as error:  # noqa: BLE001 - the user's function may raise anything
                again = await work.after(lane, record, error)
            else:
                again = None
                lane.is_calling = False
                if lane.is_overdue:
                    again = await work.after(lane, record, None)
                else:
                    settle(offset)
            lane.record = None
            chains.release(record, clock() if defers else 0.0, again)
            del record, again  # a lane that waits for work keeps none
            left -= 1
            if self._is_changed(lane):
                return
            if not left:
                left = _TURN
                await asyncio.sleep(0)  # noqa: TID251 - not a wait: others get their turn

    async def _whole_chain(self, lane: Lane, chains: Chains) -> None:
        """The same for a partition that is one chain: no other lane can take what waits behind a record of it, so a
        lane takes them together, and handles them one at a time."""
        words, slot, clock = self._watch.marks.words, lane.slot, self._clock.monotonic
        lane.cancels, has_run = self._work.listener.cancels, False
        while not self._must_check or await self._stays(lane):
            if not chains.ready:
                words[slot] = IDLE
                has_run &= not await self.supply.work_comes()
                continue
            if has_run:
                await asyncio.sleep(0)  # noqa: TID251 - not a wait: others get their turn
                has_run = False
                continue
            taken = chains.take(1 if self._peers else _TAKEN_TOGETHER, clock())
            last = taken[-1]
            rest = await self._handle_taken(lane, taken)
            lane.record = None
            if rest:
                chains.put_back(rest, clock())
            else:
                chains.release(last, clock())
            del taken, last, rest  # a lane that waits for work keeps none
            if self._is_changed(lane):
                return
            has_run = True

    async def _handle_taken(self, lane: Lane, taken: list[Record]) -> list[Record]:
        """Returns the records that were not begun, behind the one that is retried in place, if any."""
        work, clock, context, fence = self._work, self._clock.monotonic, self._context, self._fence
        settle, call, deadline = work.direct_settle, work.direct_call, fence.deadline
        words, slot, done = self._watch.marks.words, lane.slot, 0
        for record in taken:
            if clock() > deadline.fenced_after and fence.check():  # the clock may have gone on before any record
                break
            words[slot] = offset = record.offset  # in the begun table, before the call: without a system call
            lane.record = record
            lane.calls += 1
            lane.is_calling = True
            error: BaseException | None = None
            try:
                await call(record)
            except BaseException as failure:  # noqa: BLE001 - the user's function may raise anything
                error = failure
            if error is not None or lane.is_overdue:
                again = await work.after(lane, record, error)
                del error  # its traceback references this frame
                if again is not None:
                    return [again, *taken[done + 1 :]]
            else:
                lane.is_calling = False
                settle(offset)
            done += 1
            if self._must_check or lane.has_substitute or lane.is_cancelled or copy_context() != context:
                break
        return taken[done:]

    async def _singly(self, lane: Lane, chains: Chains) -> None:
        work, clock = self._work, self._clock.monotonic
        work_comes, left = self.supply.work_comes, _TURN
        while not self._must_check or await self._stays(lane):
            if not chains.ready:
                await work_comes()
                continue
            if self._fence.check():
                continue
            lane.record = record = chains.take_one()
            if work.must_follow(record):
                await self._follow_key(lane, chains, record)
                continue
            again = await work.single(lane, record)
            lane.record = None
            chains.release(record, clock(), again)
            del record, again  # a lane that waits for work keeps none
            left -= 1
            if self._is_changed(lane):
                return
            if not left:
                left = _TURN
                await asyncio.sleep(0)  # noqa: TID251 - not a wait: others get their turn

    async def _follow_key(self, lane: Lane, chains: Chains, record: Record) -> None:
        """The waiting records of a key with a backlog go to the retry topic together, not one acknowledgement each."""
        lane.window = [record, *chains.take_more(record, self._work.must_follow, _FOLLOWERS - 1)]
        await self._work.follow(lane.window)
        lane.record, lane.window = None, ()
        chains.release(record, self._clock.monotonic())

    async def _by_windows(self, lane: Lane) -> None:
        chains, supply, left = self._chains, self.supply, _TURN_OF_ROWS
        while not self._must_check or await self._stays(lane):
            if not supply.has_window():
                await supply.work_comes()
                continue
            if self._fence.check():
                continue
            records = chains.take(self._size, self._clock.monotonic(), one_each=self._work.one_each)
            lane.window = records
            again = await self._work.several(lane, records)
            while again and not chains.takes_back:  # they rest here
                await self._rests.until(max(map(rests_until, again)))
                await self._fence.opens(self)
                await self._gate.turn(self, lane, lambda failed: failed is not False)
                again = await self._work.several(lane, again)
            lane.window = ()
            chains.release_all(records, self._clock.monotonic(), again)
            left -= len(records)
            del records, again  # an idle lane keeps no records alive
            supply.wake_lanes(besides=1)  # this lane takes one of the windows
            if self._is_changed(lane):
                return
            if left <= 0:
                left = _TURN_OF_ROWS
                await asyncio.sleep(0)  # noqa: TID251 - not a wait: others get their turn

    def _is_changed(self, lane: Lane) -> bool:
        """After each call. If the function has changed its context or cancelled its task, the lane gets a new task."""
        if lane.has_substitute:  # its call has ended: now there is a surplus lane, and this one ends
            self._overdue.dismiss_substitute(lane)
            self._allow_threads()
            self.count_lanes()
        if self._idle or self._peers:
            for feed in self._feeds:
                feed()  # for room that became free: this lane may be busy with one key for a long time
        if copy_context() == self._context and not lane.is_cancelled:
            return False
        self._spawn(lane)
        return True

    # --- overdue and fenced calls ------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        self._overdue.sweep(list(self._lanes), self._wanted)

    def look_up(self) -> None:
        self._must_check = True

    def interrupt(self) -> None:
        now = self._clock.monotonic()
        for lane in self._lanes:
            lane.fence(now)

    def _add_substitute(self) -> None:
        self._allow_threads()
        self._spawn(Lane())

    # --- the end -----------------------------------------------------------------------------------------------------

    async def wait_until_idle(self, deadline: float) -> None:
        """Take no more records, and wait for those in flight until the deadline. Later ones keep running."""
        self._is_draining = self._must_check = True
        self.supply.end()
        self._rests.end()
        self._gate.leave(self)
        self._fence.leave(self)
        if self._has_more_lanes_than_threads:
            self._work.listener.withdraw()
        await lanes_end(self._lanes, deadline, self._clock)
        if self._work.acknowledging is not None:
            await self._work.acknowledging.wait(deadline - self._clock.monotonic())

    async def drain(self, deadline: float) -> tuple[Record, ...]:
        """The same, then abandon and return the records still in flight. They stay unsettled."""
        await self.wait_until_idle(deadline)
        pending = () if self._work.acknowledging is None else self._work.acknowledging.abandon()
        self._sweeps.leave(self._sweep)
        self._overdue.end()
        abandoned = (*self.in_flight, *pending)
        if abandoned:
            log.warning("abandoning %d records in flight of %s: %s", len(abandoned), self._queue, abandoned[0])
        for lane in list(self._lanes):
            if lane.task is not None:
                lane.task.cancel()
        await lanes_end(self._lanes, self._clock.monotonic() + _GRACE, self._clock)
        return abandoned
