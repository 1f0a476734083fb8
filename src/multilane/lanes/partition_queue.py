"""Queues the records of one partition between the log and the lanes, or of two partitions that share their keys.

Thread: loop (one owner).

Owns the intakes of its partitions, and the chains of each lane class. It takes in only what lanes are about to need;
`settle` and `release` report what they have handled. Two partitions share a queue if the order of a key continues from
a topic to its retry topic. Never runs anything, and knows neither clock nor engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from multilane.commit.ledger import CommitPoint
from multilane.lanes.intake import Intake, Piece
from multilane.lanes.waiting_records import WaitingRecords
from multilane.logs import logger
from multilane.outcome.raised import as_failure
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

log = logger(__name__)

MAIN: Final = ""  # the lane class of records that no route function sends elsewhere
Route = Callable[[Record], str]


class PartitionQueue:
    def __init__(
        self,
        intakes: Sequence[Intake],
        chains: Mapping[str, WaitingRecords],
        route: Route | None = None,
        note: Callable[[list[Record]], None] | None = None,
    ) -> None:
        """`intakes` in the order in which they are read; `chains` for each lane class; `route` returns the lane class
        of a record; `note` gets the records when they are taken in, and may replace some."""
        self.intakes = {intake.partition: intake for intake in intakes}
        self._chains = dict(chains)
        self._route = route
        self._note = note
        self.is_paused = False  # if so, no record is taken in
        self._by_topic = {intake.partition.topic: intake for intake in intakes}
        # The shortcut for a queue of one partition: it is called for each record.
        ledger = intakes[0].ledger if len(intakes) == 1 and not intakes[0].bounds_bytes else None
        self.settle_offset = None if ledger is None else ledger.settle
        self.settle_offsets = None if ledger is None else ledger.settle_all

    def __str__(self) -> str:
        return "+".join(map(str, self.intakes))

    # --- taking in ---------------------------------------------------------------------------------------------------

    def refill(self, wanted: Callable[[], bool], now: float) -> bool:
        """Take records in while they are `wanted`, as they are now, and there are some and room for them. True if any
        came."""
        came = False
        if self.is_paused:
            return came
        for intake in self.intakes.values():
            while intake.has_blocks and not intake.is_full and (not came or wanted()):
                came = True
                self._put(intake.next_piece(), now)
        return came

    def copy_out(self, partition: TopicPartition) -> None:
        """The records of this partition will wait for a long time: copy them, lest they keep whole frames alive."""
        self.intakes[partition].copy_out()
        for chains in self._chains.values():
            chains.release_frames()

    def chains(self, name: str) -> WaitingRecords:
        """Where the records of a lane class wait."""
        return self._chains[name]

    def _put(self, piece: Piece, now: float) -> None:
        if self._route is None and self._note is None:
            self._chains[MAIN].put_piece(piece, now)
            return
        records = piece.records()
        if self._note is not None:
            self._note(records)
        for name, some in self.routed(records).items():
            self._chains[name].put(some, now)

    def routed(self, records: Sequence[Record]) -> Mapping[str, Sequence[Record]]:
        """Records by lane class."""
        if self._route is None:
            return {MAIN: records}
        routed: dict[str, list[Record]] = {}
        for record in records:
            routed.setdefault(self._class_of(record, self._route), []).append(record)
        return routed

    def _class_of(self, record: Record, route: Route) -> str:
        try:
            name = route(record)
        except BaseException as error:  # the main lanes handle the record then
            as_failure(error)
            log.exception("the route function failed for %s", record)
            return MAIN
        return name if name in self._chains else MAIN

    # --- settling ----------------------------------------------------------------------------------------------------

    def settle(self, record: Record) -> None:
        self._by_topic[record.topic].settle(record)

    @property
    def settled(self) -> int:
        return sum(intake.ledger.handed_out - len(intake.ledger) for intake in self.intakes.values())

    def commit_point(self, partition: TopicPartition) -> CommitPoint:
        return self.intakes[partition].ledger.commit_point()

    @property
    def waiting_rows(self) -> int:
        """Records that came and are not taken in."""
        return sum(intake.waiting_rows for intake in self.intakes.values())

    @property
    def received(self) -> int:
        return sum(intake.ledger.handed_out + intake.waiting_rows for intake in self.intakes.values())

    @property
    def unsettled(self) -> int:
        return sum(len(intake.ledger) for intake in self.intakes.values())
