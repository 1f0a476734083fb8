"""Calls the function for the records that a lane has taken, and hands them over to be settled when the call has ended.

Thread: loop.

Decides what the end of a call means: success, failure, an overrun of its time, or a call that the fence has cancelled,
whose records are put back. Owns nothing; never takes records, settles none itself (see `settling`) and never commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final

from multilane.errors import ProcessingTimeout
from multilane.lanes.acknowledging import Pending
from multilane.lanes.lane import Lane
from multilane.lanes.partition_queue import PartitionQueue
from multilane.lanes.settling import Settling
from multilane.lanes.threads import failure_of
from multilane.lanes.work_rules import FailureSide, WorkRules, cannot_settle_offset, is_behind
from multilane.lanes.worker import WorkerDied
from multilane.listeners.listener import CallResults, Listener
from multilane.listeners.signature import ListenerKind
from multilane.listeners.window import Select, Selection, newest_of_each_key
from multilane.logs import logger
from multilane.outcome.parking import Parking
from multilane.outcome.raised import as_failure
from multilane.wire.records.keyed_rows import TakenRows
from multilane.wire.records.record import Record

log = logger(__name__)

_ALWAYS_OPEN: Final = nullcontext()


class Work:
    def __init__(
        self,
        queue: PartitionQueue,
        listener: Listener,
        failures: FailureSide,
        rules: WorkRules,
        parking: Parking | None = None,
        by_topic: Mapping[str, Listener] | None = None,
    ) -> None:
        """`by_topic`: separate listeners for topics that share the queue."""
        self.listener = listener
        self.window = listener.window
        self.max_processing_time = rules.max_processing_time
        self._time_option = rules.time_option
        self.gate = rules.gate
        self.fence = rules.fence
        self.slow_calls = rules.slow_calls
        self.watch = rules.watch
        self._order_of = rules.order_of
        self._results = rules.results
        self._parks = parking is not None
        self._by_topic = dict(by_topic or {})
        self.settling = settling = Settling(queue, listener.interceptors, failures, rules, parking)
        self.acknowledging = settling.acknowledging
        # Its own, because every record calls some of them.
        self.must_follow = settling.must_follow
        self.follow = settling.follow
        self._settle_done = settling.done
        self._fail = settling.fail
        self._fail_all = settling.fail_all
        self.is_direct = (
            settling.settle_offset is not None
            and not rules.is_manual
            and not failures.wants_successes
            and listener.gate is None
            and rules.results is None
        )
        # Where order survives a retry, records that succeeded behind a failed one of their key are handled again.
        self.one_each = parking is not None and listener.window.select is None
        self.has_more_lanes_than_threads = (
            self.is_direct and rules.has_more_lanes_than_threads and listener.runs_on_threads
        )
        self.direct_call = listener.call_one
        self.direct_settle: Callable[[int], None] = settling.settle_offset or cannot_settle_offset

    @property
    def may_call_directly(self) -> bool:
        """Whether lanes may use the shortest loop now."""
        return self.is_direct and self.window.is_single and not self.watch.isolates_suspects

    def _of(self, record: Record) -> Listener:
        return self._by_topic.get(record.topic, self.listener)

    # --- one record --------------------------------------------------------------------------------------------------

    async def single(self, lane: Lane, record: Record) -> Record | None:
        """Returns None if the record is settled or waits only for its acknowledgement, the record if it is retried."""
        if self.watch.isolates_suspects and (poison := self.watch.poison(record)) is not None:
            return await self._fail(record, poison)
        listener, pending, returned = self._of(record), None, None
        async with self._turn(listener, (record,)):
            if (listener.gate is not None or self.watch.isolates_suspects) and self.fence.check():
                return record  # the fence may have shut while it waited for its turn
            self._begin(lane, listener, (record,))
            try:
                if self.acknowledging is None:
                    returned = await listener.call_one(record)
                else:
                    acknowledgement, lane.pending = self.acknowledging.issue((record,))
                    pending = lane.pending
                    await listener.call_one(record, acknowledgement)
            except BaseException as failure:  # noqa: BLE001 - the user's function may raise anything
                error: BaseException | None = failure
            else:
                error = None
            self._end(lane, pending)
        is_late = lane.is_overdue and not lane.cancels  # it has failed, whatever it returned
        if self._results is not None and error is None and returned is not None and not is_late:
            error = (await self._results.store((record,), (returned,))).get(record)
        try:
            return await self.after(lane, record, error, pending)
        finally:
            del error  # its traceback references this frame: the cycle would live until the next garbage collection

    def _turn(self, listener: Listener, records: Sequence[Record]) -> AbstractAsyncContextManager[object]:
        """If the number of concurrent calls is limited, the processing time of a call starts with its turn."""
        gate = listener.gate or _ALWAYS_OPEN
        return gate if not self.watch.isolates_suspects else self.watch.turn(records, gate)

    def _begin(self, lane: Lane, listener: Listener, records: Sequence[Record]) -> None:
        self.watch.begin(lane.slot, records)
        lane.calls += 1
        lane.cancels = listener.cancels
        lane.is_calling = True

    def _end(self, lane: Lane, pending: Pending | None) -> None:
        """Until the records are acknowledged their work may go on: their mark stays, and the lane gets another slot."""
        lane.is_calling = False
        if pending is None or pending.is_over:
            self.watch.end(lane.slot)
        else:
            pending.slot, lane.slot = lane.slot, self.watch.marks.take_slot()

    async def after(
        self, lane: Lane, record: Record, error: BaseException | None, pending: Pending | None = None
    ) -> Record | None:
        """The function has ended, with an error or without."""
        lane.is_calling = False
        if isinstance(error, asyncio.CancelledError):
            if lane.is_fenced:
                return self._put_back(lane, (record,), pending)[0]
            error = self._overrun(lane, (record,), error)
        elif error is not None and not isinstance(error, Exception):
            error = failure_of(error)
        if lane.is_overdue:
            error = self._late(lane, error)
        if error is not None:
            self.watch.end(lane.slot)  # the shortest loop leaves its mark there
            await lane.go_on()
            return next(iter(await self._fail_all((record,), {record: error}, pending)), None)
        if pending is None:
            self._settle_done((record,))
        return None

    def _put_back(self, lane: Lane, records: Sequence[Record], pending: Pending | None) -> list[Record]:
        """Other members may own these: their calls were cancelled, and have not failed."""
        self._late(lane, None)
        self.settling.failures.note_interrupted(records)
        self.gate.lost(lane)
        self.listener.interceptors.forget(records)
        if pending is not None and self.acknowledging is not None:
            self.acknowledging.fail(pending, records)
        return list(records)

    def _overrun(self, lane: Lane, records: Sequence[Record], cancelled: asyncio.CancelledError) -> BaseException:
        """A failure: the sweep cancelled this call, or the function raised it itself. Any other one ends the lane."""
        if lane.is_overdue and lane.cancels:
            timeout = self._timeout()
            timeout.__cause__ = cancelled  # its traceback shows where the call waited
            return timeout
        task = asyncio.current_task()
        if lane.has_cancelled_itself or (task is not None and not task.cancelling()):
            return cancelled
        self.listener.interceptors.forget(records)
        raise cancelled

    def _late(self, lane: Lane, error: BaseException | None) -> BaseException | None:
        """A call ended after it was overdue. A call that was cancelled and succeeded anyway counts as a success."""
        lane.is_overdue = lane.is_fenced = lane.hangs = False
        if not lane.cancels:
            return error or self._timeout()
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
            lane.is_cancelled = False
        return error

    def _timeout(self) -> ProcessingTimeout:
        return ProcessingTimeout(
            f"{self.listener} took longer than {self.max_processing_time:g} s ({self._time_option})"
        )

    # --- a window ----------------------------------------------------------------------------------------------------

    async def several(self, lane: Lane, records: Sequence[Record]) -> list[Record]:
        """The same for a window. Returns the records that are retried in place."""
        return await (self._isolating_suspects if self.watch.isolates_suspects else self._window)(lane, records)

    async def _isolating_suspects(self, lane: Lane, records: Sequence[Record]) -> list[Record]:
        """A window in which some records must be handled alone, or not at all."""
        if isinstance(records, TakenRows) and records.skipped:
            self.settling.skip_rows(records)
        again: list[Record] = []
        for piece in self.watch.pieces(records):
            keys = set(map(self._order_of, again)) - {None}  # records behind one that stays wait for it
            free = [record for record in piece if self._order_of(record) not in keys]
            if free and (poison := self.watch.poison(free[0])) is not None:
                again += await self._fail_all(free, dict.fromkeys(free, poison), None)
            elif free:
                again += await self._window(lane, free)
            again += [record for record in piece if self._order_of(record) in keys]
        return again

    async def _window(self, lane: Lane, records: Sequence[Record]) -> list[Record]:
        if self._parks:
            # Before the select function runs: records from the topic belong behind those in the retry topic.
            records = await self.settling.without_followers(records)
        handled = records
        if self.window.select is newest_of_each_key and isinstance(records, TakenRows):
            if records.skipped:
                self.settling.skip_rows(records)  # they were selected when the window was taken
        elif self.window.select is not None:
            try:
                handled, skipped = self._selected(lane, records, self.window.select)
            except BaseException as error:  # noqa: BLE001 - the user's function may raise anything
                return await self._fail_all(records, dict.fromkeys(records, as_failure(error)), None)
            self.settling.skip(skipped)
        if self.listener.kind is ListenerKind.SINGLE:
            return await self._one_by_one(lane, handled)
        if not self._by_topic:
            return await self._batch(lane, self.listener, handled) if handled else []
        back: list[Record] = []
        for listener in dict.fromkeys(map(self._of, handled)):
            back += await self._batch(lane, listener, [r for r in handled if self._of(r) is listener])
        return back

    async def _one_by_one(
        self, lane: Lane, records: Sequence[Record], listener: Listener | None = None
    ) -> list[Record]:
        """In order. For a `listener` of batches each record is a batch of its own."""
        again: list[Record] = []
        for at, record in enumerate(records):
            if self.fence.check():
                return [*again, *list(records)[at:]]
            if self.must_follow(record):
                await self.follow([record])
            elif is_behind(record, again, self._order_of):
                again.append(record)
            elif listener is not None:
                again += await self._batch(lane, listener, [record])
            elif (back := await self.single(lane, record)) is not None:
                again.append(back)
        return again

    def _selected(self, lane: Lane, records: Sequence[Record], select: Select) -> Selection:
        if records:
            self.watch.begin(lane.slot, records)
        try:
            handled, skipped = selection = select(list(records))  # a copy: the function may change it
        finally:
            self.watch.end(lane.slot)
        is_ours = select is newest_of_each_key
        if not is_ours and (len(handled) + len(skipped) != len(records) or {*handled, *skipped} != set(records)):
            raise ValueError(f"the select function of {self.listener} must return each record of its window once")
        return selection

    async def _after_death(self, lane: Lane, listener: Listener, records: Sequence[Record]) -> list[Record]:
        """A worker process died with these, and any of them may have killed it: only one that is alone shows that."""
        log.warning("%s: calling it once more with each of the %d records alone", listener, len(records))
        self.settling.failures.note_interrupted(records)
        listener.interceptors.forget(records)
        return await self._one_by_one(lane, records, listener)

    async def _batch(self, lane: Lane, listener: Listener, records: Sequence[Record]) -> list[Record]:
        has_died = False
        results: CallResults | None = None if self._results is None else {}
        async with self._turn(listener, records):
            if self.fence.check():
                return list(records)
            issue = None if self.acknowledging is None else self.acknowledging.issue
            acknowledgement, pending = (None, None) if issue is None else issue(records)
            lane.pending = pending
            self._begin(lane, listener, records)
            try:
                failures = await listener.call_many(records, acknowledgement, results)
            except asyncio.CancelledError as cancelled:
                if lane.is_fenced:
                    return self._put_back(lane, records, pending)
                failures = dict.fromkeys(records, self._overrun(lane, records, cancelled))
            except BaseException as failure:  # noqa: BLE001 - the user's function may raise anything
                has_died = isinstance(failure, WorkerDied)
                failures = dict.fromkeys(records, failure_of(failure))
            finally:
                self._end(lane, pending)
        if has_died and len(records) > 1 and not lane.is_overdue:
            return await self._after_death(lane, listener, records)
        if lane.is_overdue:
            late = self._late(lane, None)
            failures = failures or (dict.fromkeys(records, late) if late is not None else {})
        if self._results is not None and results:
            stored = [record for record in results if record not in failures]
            failures |= await self._results.store(stored, [results[record] for record in stored])
        if failures:
            await lane.go_on()
        try:
            return await self.settling.batch(records, failures, pending)
        finally:
            failures.clear()  # the errors' tracebacks reference it: a cycle that keeps all of these records alive
