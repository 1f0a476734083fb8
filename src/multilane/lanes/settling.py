"""Settles the records of calls that have ended, each when it may be settled.

Thread: loop.

A record is settled after its function succeeded, after a select function skipped it, or after a broker acknowledged its
copy in a retry or error topic; with manual acknowledgement, when it is acknowledged. Anything that ends earlier leaves
it unsettled. Owns the pending acknowledgements and the records that are retried in place; never calls the function and
never commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence

from multilane.lanes.acknowledging import Acknowledging, Pending
from multilane.lanes.partition_queue import PartitionQueue
from multilane.lanes.work_rules import (
    OF_A_CALL,
    FailureSide,
    WorkRules,
    cannot_put_back,
    cannot_settle_offset,
    echoes,
    is_behind,
)
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.listener import CallErrors
from multilane.outcome.parking import Parking
from multilane.wire.records.keyed_rows import TakenRows
from multilane.wire.records.record import Record
from multilane.wire.records.window_rows import offsets_of


class Settling:
    def __init__(
        self,
        queue: PartitionQueue,
        interceptors: InterceptorChain,
        failures: FailureSide,
        rules: WorkRules,
        parking: Parking | None,
    ) -> None:
        self.failures = failures
        give_slot = rules.watch.marks.give_slot
        self.acknowledging = Acknowledging(self.done, self._reject, give_slot) if rules.is_manual else None
        self.retried: dict[tuple[str, int], Record] = {}  # retried in place, with the attempts counted
        self.on_again: Callable[[Sequence[Record]], object] = cannot_put_back
        self.settle_offset = queue.settle_offset if parking is None else None  # None: not by offset alone
        self._settle_offsets = (queue.settle_offsets if parking is None else None) or cannot_settle_offset
        self._queue = queue
        self._interceptors = interceptors
        self._parking = parking
        self._gate = rules.gate
        self._order_of = rules.order_of
        self._retries_in_place = rules.retries_in_place

    # --- keys with a backlog in the retry topic ----------------------------------------------------------------------

    def must_follow(self, record: Record) -> bool:
        return self._parking is not None and self._parking.must_follow(record)

    async def follow(self, records: Sequence[Record]) -> None:
        """These go to the retry topic in order, unhandled."""
        if records and self._parking is not None:
            await self.failures.follow_key(records, self._parking)
            for record in records:
                self._settle(record)

    async def without_followers(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records that are to be handled; the others have gone to the retry topic."""
        if self._parking is None:
            return records
        parking = self._parking
        followers = [record for record in records if parking.must_follow(record)]
        await self.follow(followers)
        return [record for record in records if record not in followers] if followers else records

    # --- done --------------------------------------------------------------------------------------------------------

    def done(self, records: Sequence[Record]) -> None:
        self.failures.note_done(records)
        if self.settle_offset is not None:
            self._settle_offsets(offsets_of(records))
            return
        for record in records:
            self._settle(record)

    def skip(self, records: Sequence[Record]) -> None:
        """A select function has skipped these."""
        self.failures.note_skipped(records)
        for record in records:
            self._settle(record)

    def skip_rows(self, rows: TakenRows) -> None:
        """The same for the rows that were skipped when these were taken."""
        self.failures.note_skipped_rows(rows)
        self._settle_offsets(rows.skipped)

    def _settle(self, record: Record) -> None:
        if self.settle_offset is not None:
            self.settle_offset(record.offset)
            return
        self._queue.settle(record)
        if self._parking is not None:
            self._parking.settled(record)
            if self.retried:
                self.retried.pop((record.topic, record.offset), None)

    # --- failed ------------------------------------------------------------------------------------------------------

    async def fail_all(self, failed: Sequence[Record], failures: CallErrors, pending: Pending | None) -> list[Record]:
        """Returns the records that are retried in place."""
        if pending is not None and self.acknowledging is not None:
            undecided = self.acknowledging.fail(pending, failed)
            self._interceptors.forget([record for record in failed if record not in undecided])
            failed = undecided
        if len(failed) > OF_A_CALL:
            self._gate.note_echoes(echoes({record: failures[record] for record in failed}))
        if len(failed) == 1 or self._parking is not None:
            again = [await self.fail(record, failures[record]) for record in failed]
        else:
            again = await asyncio.gather(*(self.fail(record, failures[record]) for record in failed))
        return [record for record in again if record is not None]

    async def fail(self, record: Record, error: BaseException) -> Record | None:
        """Returns None if the record is settled, the record if it is retried in place."""
        again = await self.failures.take_over(record, error, self._parking)
        if again is None:
            self._settle(record)
        elif self._parking is not None and again.headers is not record.headers:
            self.retried[record.topic, record.offset] = again
        return again

    def _reject(self, records: Sequence[Record], error: BaseException) -> asyncio.Future[list[Record]]:
        return asyncio.ensure_future(self._rejected(records, error))

    async def _rejected(self, records: Sequence[Record], error: BaseException) -> list[Record]:
        again = await self.fail_all(records, dict.fromkeys(records, error), None)
        if again:
            self.on_again(again)
        return again

    # --- a batch, some of which may have failed ----------------------------------------------------------------------

    async def batch(self, records: Sequence[Record], failures: CallErrors, pending: Pending | None) -> list[Record]:
        """Returns the records that are retried in place."""
        if failures and self._parking is not None:
            return await self._batch_in_order(records, failures)
        if failures and self._retries_in_place and pending is None:
            return await self._batch_around_failures(records, failures)
        if pending is None:
            self.done([record for record in records if record not in failures] if failures else records)
        return await self.fail_all([r for r in records if r in failures], failures, pending) if failures else []

    async def _batch_in_order(self, records: Sequence[Record], failures: CallErrors) -> list[Record]:
        """With order across retries: what succeeded behind a failed record of its key is handled again after it."""
        self._gate.note_echoes(echoes(failures))
        again: list[Record] = []
        for record in records:
            if record in failures:
                back = await self.fail(record, failures[record])
                again += [] if back is None else [back]
            elif is_behind(record, again, self._order_of):
                self.failures.note_interrupted((record,))
                again.append(record)
            elif self.must_follow(record):
                self.failures.note_interrupted((record,))
                await self.follow([record])
            else:
                self.done((record,))
        return again

    async def _batch_around_failures(self, records: Sequence[Record], failures: CallErrors) -> list[Record]:
        """Failed records may stay in place: what succeeded behind one of its key is handled again after it."""
        order_of = self._order_of
        keys = set(map(order_of, failures)) - {None}
        self.done([r for r in records if r not in failures and order_of(r) not in keys])
        failed = [record for record in records if record in failures]
        staying = {record: record for record in await self.fail_all(failed, failures, None)}
        blocked: set[Hashable] = set()
        again: list[Record] = []
        for record in records:
            if record in staying:
                again.append(staying[record])
                blocked |= {order_of(record)} - {None}
            elif record not in failures and order_of(record) in blocked:
                again.append(record)
            elif record not in failures and order_of(record) in keys:
                self.done((record,))
        self.failures.note_interrupted([record for record in again if record not in staying])
        return again
