"""What work on records goes by: the rules of its consumer, and whom it gives failed records to.

Thread: loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from multilane.lanes.fence import NO_FENCE
from multilane.lanes.fence import Guard as FenceGuard
from multilane.lanes.gate import NO_GATE, Guard
from multilane.lanes.slow_calls import SlowCalls
from multilane.lanes.watch import Watch
from multilane.outcome.parking import Parking
from multilane.wire.records.keyed_rows import TakenRows
from multilane.wire.records.record import Record


class FailureSide(Protocol):
    """Where failed records go; each returns when the record may be settled, and raises when it never could be. One that
    is given back is to be tried again in its place. It hears of the others, right before they are settled."""

    async def take_over(self, record: Record, error: BaseException, parking: Parking | None) -> Record | None: ...
    async def let_follow(self, records: Sequence[Record], parking: Parking) -> None: ...
    def note_done(self, records: Sequence[Record]) -> None: ...
    def note_skipped(self, records: Sequence[Record]) -> None: ...
    def note_passed_over(self, rows: TakenRows) -> None: ...
    @property
    def hears_of_successes(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class WorkRules:
    """What the lanes of a yard have to know of their consumer."""

    max_processing_time: float = 1.0
    is_manual: bool = False  # a record is settled when it is acknowledged
    tries_in_place: bool = False  # what failed may be given back, also where there is no retry topic
    runs_ahead: bool = False  # the threads of a plain function are this yard's alone: records may wait for one
    watch: Watch = field(default_factory=Watch)
    gate: Guard = NO_GATE  # what lanes wait for in an outage
    fence: FenceGuard = NO_FENCE  # what they wait for while others may have their partitions
    slow_calls: SlowCalls = field(default_factory=SlowCalls)


def nobody_takes_back(records: Sequence[Record]) -> None:
    raise AssertionError(f"{len(records)} records are to be handled again, and nobody takes them back")


def nobody_settles_so(offset: object) -> None:
    raise AssertionError(f"{offset}: records are not settled by their offsets alone here")
