"""Records that wait for their manual acknowledgement, after their function has returned.

Thread: loop; acknowledgements arrive from any thread and are decided here.

Owns the pending records. A record that was acknowledged, has failed or was abandoned is no longer pending: a later
acknowledgement changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from multilane.errors import PublishStopped
from multilane.listeners.acknowledgement import Acknowledgement
from multilane.wire.records.record import Record

Settle = Callable[[Sequence[Record]], None]
Reject = Callable[[Sequence[Record], BaseException], "asyncio.Future[Any]"]


class Pending:
    """The records of one call."""

    __slots__ = ("is_decided", "is_over", "records", "slot")

    def __init__(self, records: Iterable[Record]) -> None:
        self.records: Final = list(records)
        self.is_over = False
        self.is_decided = False  # over, and rejected records were handed to the failure side
        self.slot = 0  # in the begun table, once the function has returned: its work may go on


class Acknowledging:
    def __init__(self, settle: Settle, reject: Reject, give_slot: Callable[[int], object] = lambda slot: None) -> None:
        self._settle = settle
        self._reject = reject
        self._give_slot = give_slot
        self._loop = asyncio.get_running_loop()
        self._pending: set[Pending] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.on_settled: Callable[[], object] = lambda: None
        self.on_failure: Callable[[BaseException], object] = lambda failure: None

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def records(self) -> list[Record]:
        """The records that wait for their acknowledgement."""
        return [record for pending in self._pending for record in pending.records]

    def issue(self, records: Iterable[Record]) -> tuple[Acknowledgement, Pending]:
        pending = Pending(records)
        self._pending.add(pending)
        self._empty.clear()
        return Acknowledgement(lambda error: self._decide_on_loop(pending, error)), pending

    def fail(self, pending: Pending, failed: Iterable[Record]) -> list[Record]:
        """These failed before they were acknowledged. Returns those that were not decided yet."""
        if pending.is_over:
            return []
        undecided = [record for record in failed if record in pending.records]
        for record in undecided:
            pending.records.remove(record)
        if not pending.records:
            self._close(pending)
        return undecided

    def abandon(self) -> list[Record]:
        """Stop waiting. Returns the records that were handled and not acknowledged."""
        records = [record for pending in self._pending for record in pending.records]
        for pending in list(self._pending):
            self._close(pending)
        return records

    async def wait(self, seconds: float) -> None:
        """Wait until no record is pending, at most `seconds`."""
        waiting = asyncio.ensure_future(self._empty.wait())
        await asyncio.wait([waiting], timeout=max(0.0, seconds))
        waiting.cancel()

    def _decide_on_loop(self, pending: Pending, error: BaseException | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._decide, pending, error)
        except RuntimeError:
            return  # the loop is closed: too late, the records are redelivered

    def _decide(self, pending: Pending, error: BaseException | None) -> None:
        if pending.is_over:
            return
        if error is None:
            self._settle(pending.records)
            self._close(pending)
            self.on_settled()
            return
        self._end(pending)  # but it is still pending until the rejection is through
        self._reject(pending.records, error).add_done_callback(lambda ended: self._rejected(pending, ended))

    def _rejected(self, pending: Pending, ended: asyncio.Future[Any]) -> None:
        self._close(pending)
        failure = None if ended.cancelled() else ended.exception()
        if failure is None:
            self.on_settled()
        elif not isinstance(failure, PublishStopped):
            self.on_failure(failure)

    def _end(self, pending: Pending) -> None:
        pending.is_over = True
        if pending.slot:
            self._give_slot(pending.slot)
            pending.slot = 0

    def _close(self, pending: Pending) -> None:
        self._end(pending)
        pending.is_decided = True
        self._pending.discard(pending)
        if not self._pending:
            self._empty.set()
