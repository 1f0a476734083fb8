"""What work on records goes by: the rules of its consumer, and whom it gives failed records to.

Thread: loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from multilane.lanes.fence import NO_FENCE, FenceGuard
from multilane.lanes.gate import NO_GATE, OutageGuard
from multilane.lanes.ordering import OrderOf, by_key
from multilane.lanes.slow_calls import SlowCalls
from multilane.lanes.watch import Watch
from multilane.listeners.listener import Failures
from multilane.outcome.parking import Parking
from multilane.wire.records.keyed_rows import TakenRows
from multilane.wire.records.record import Record

OF_A_CALL: Final = 2  # failures that a window counts for when it fails as a whole


class FailureSide(Protocol):
    """Where failed records go; each returns when the record may be settled, and raises when it never could be. One that
    is given back is to be tried again in its place. It hears of the others, right before they are settled."""

    async def take_over(self, record: Record, error: BaseException, parking: Parking | None) -> Record | None: ...
    async def let_follow(self, records: Sequence[Record], parking: Parking) -> None: ...
    def note_done(self, records: Sequence[Record]) -> None: ...
    def note_skipped(self, records: Sequence[Record]) -> None: ...
    def note_skipped_rows(self, rows: TakenRows) -> None: ...
    @property
    def wants_successes(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class WorkRules:
    """What the lanes of a yard have to know of their consumer."""

    max_processing_time: float = 1.0
    is_manual: bool = False  # a record is settled when it is acknowledged
    tries_in_place: bool = False  # what failed may be given back, also where there is no retry topic
    runs_ahead: bool = False  # the threads of a plain function are this yard's alone: records may wait for one
    watch: Watch = field(default_factory=Watch)
    gate: OutageGuard = NO_GATE  # what lanes wait for in an outage
    fence: FenceGuard = NO_FENCE  # what they wait for while others may have their partitions
    slow_calls: SlowCalls = field(default_factory=SlowCalls)
    order_of: OrderOf = field(default_factory=by_key)  # what waits behind a record that stays in place


def echoes(failures: Failures) -> Iterator[Record]:
    """Records that failed with the very error of others: a function that raises fails its whole window at once."""
    seen: Counter[int] = Counter()
    for record, error in failures.items():
        seen[id(error)] += 1
        if seen[id(error)] > OF_A_CALL:
            yield record


def is_behind(record: Record, staying: Sequence[Record], order_of: OrderOf) -> bool:
    """Whether it has to come after one of these, which are to be tried again."""
    order = order_of(record) if staying else None
    return order is not None and any(order_of(other) == order for other in staying)


def nobody_takes_back(records: Sequence[Record]) -> None:
    raise AssertionError(f"{len(records)} records are to be handled again, and nobody takes them back")


def nobody_settles_so(offset: object) -> None:
    raise AssertionError(f"{offset}: records are not settled by their offsets alone here")
