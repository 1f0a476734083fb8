"""Rules for handling the records of a consumer, and the interface that takes failed records.

Thread: loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from multilane.lanes.fence import NO_FENCE, FenceGuard
from multilane.lanes.gate import NO_GATE, OutageGuard
from multilane.lanes.ordering import OrderOf, by_key
from multilane.lanes.slow_calls import SlowCalls
from multilane.lanes.watch import Watch
from multilane.listeners.listener import CallErrors
from multilane.outcome.parking import Parking
from multilane.wire.records.keyed_rows import TakenRows
from multilane.wire.records.record import Record

OF_A_CALL: Final = 2  # failures that a window counts as if it fails as a whole


class FailureSide(Protocol):
    """Takes failed records. `take_over` returns None when the record may be settled, returns the record if it is
    retried in place, and raises if it can never be settled. The notes come right before other records are settled."""

    async def take_over(self, record: Record, error: BaseException, parking: Parking | None) -> Record | None: ...
    async def follow_key(self, records: Sequence[Record], parking: Parking) -> None: ...
    def hanging_steps(self, now: float, limit: float, grace: float) -> Collection[Record]:
        """Called by each sweep: ends last steps beyond the limit, and returns the records of those that do not end."""

    def note_done(self, records: Sequence[Record]) -> None: ...
    def note_interrupted(self, records: Sequence[Record]) -> None:
        """Their call may have had an effect, and they are handled again."""

    def note_skipped(self, records: Sequence[Record]) -> None: ...
    def note_skipped_rows(self, rows: TakenRows) -> None: ...
    @property
    def wants_successes(self) -> bool: ...


class StoresResults(Protocol):
    """Publishes what the function returned for these records. Returns the records whose results were not stored, with
    the reason. Raises PublishStopped when it is stopped."""

    async def store(self, records: Sequence[Record], returned: Sequence[Any]) -> CallErrors: ...


@dataclass(frozen=True, slots=True)
class WorkRules:
    """The rules of a consumer for the lanes of a processor."""

    max_processing_time: float = 1.0
    is_manual: bool = False  # a record is settled when it is acknowledged
    retries_in_place: bool = False  # failed records may be retried in place, even without a retry topic
    has_more_lanes_than_threads: bool = (
        False  # more lanes than threads, so that a thread that ends finds its next record waiting
    )
    watch: Watch = field(default_factory=Watch)
    gate: OutageGuard = NO_GATE  # lanes wait here in an outage
    fence: FenceGuard = NO_FENCE  # lanes wait here while other members may own their partitions
    slow_calls: SlowCalls = field(default_factory=SlowCalls)
    results: StoresResults | None = None  # None: what the function returns is not published
    order_of: OrderOf = field(default_factory=by_key)  # decides which records wait behind one that stays in place
    time_option: str = "maxProcessingTime"  # the option with the limit, for messages


def echoes(failures: CallErrors) -> Iterator[Record]:
    """Records that failed with the same error object as others: a function that raises fails its whole window."""
    seen: Counter[int] = Counter()
    for record, error in failures.items():
        seen[id(error)] += 1
        if seen[id(error)] > OF_A_CALL:
            yield record


def is_behind(record: Record, staying: Sequence[Record], order_of: OrderOf) -> bool:
    """Whether the record must come after one of these, which are retried."""
    order = order_of(record) if staying else None
    return order is not None and any(order_of(other) == order for other in staying)


def cannot_put_back(records: Sequence[Record]) -> None:
    raise AssertionError(f"{len(records)} records have to be handled again, but on_again is not set")


def cannot_settle_offset(offset: object) -> None:
    raise AssertionError(f"{offset}: this queue does not settle records by offset alone")
