"""What became of each record, noted when it is settled: the rows of the audit, before they are written.

Thread: one owner.

A record has one of four outcomes: done, skipped (for a newer one of its key), retried (a copy is in the retry topic) or
dead (a copy is in the error topic, or the last step has it). Two more kinds of rows are no outcomes: where somebody
began to work on a partition (from there on every record must have an account), and which calls were given up before
they ended (their records may be handled more than once). Notes are kept as they come, many records in one where they
were settled together, and become columns when they are taken. Never writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from multilane.types import TopicPartition
from multilane.wire.records.keyed_rows import TakenRows
from multilane.wire.records.keyed_storage import Packed
from multilane.wire.records.record import Record


class RecordOutcome(StrEnum):
    """What a row says."""

    DONE = "done"
    SKIPPED = "skipped"
    RETRIED = "retried"
    DEAD = "dead"
    BEGUN = "begun"  # of a partition: from this offset on somebody works on it
    INTERRUPTED = "interrupted"  # its call was given up before it ended: it may have run, and comes again


OUTCOMES = tuple(RecordOutcome)
_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}


class CopyPlace(NamedTuple):
    """Where the copy of a record lies. An offset below 0: there, but where is not known."""

    topic: str
    partition: int
    offset: int


class _Note(NamedTuple):
    place: TopicPartition
    outcome: RecordOutcome
    offsets: Packed | Sequence[int]
    settled_at: int
    copy: CopyPlace | None = None


@dataclass(frozen=True, slots=True)
class AuditRecords:
    """Columns of equal length, in the order in which the records were settled. `places` and `copies` are what `place`
    and `copy` number; a copy of -1 is none. The times are microseconds since 1970."""

    place: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    outcome: npt.NDArray[np.int8]  # its number in OUTCOMES
    settled_at: npt.NDArray[np.int64]
    copy: npt.NDArray[np.int32]
    places: tuple[TopicPartition, ...]
    copies: tuple[CopyPlace, ...]

    def __len__(self) -> int:
        return len(self.offset)


class Notes(Protocol):
    """Whoever hears what becomes of records, right before they are settled. Not all hear of those that are `done`."""

    @property
    def hears_of_done(self) -> bool: ...
    def note_done(self, records: Sequence[Record]) -> None: ...
    def note_skipped(self, records: Sequence[Record]) -> None: ...
    def note_passed_over(self, rows: TakenRows) -> None: ...
    def note_interrupted(self, records: Sequence[Record]) -> None: ...
    def note_failed(
        self, record: Record, outcome: RecordOutcome, copy: CopyPlace | None, error: BaseException | None
    ) -> None: ...


class RecordJournal:
    """Notes that wait to be written. `now` gives microseconds since 1970 and never goes back: the order of a key's
    records is judged by it."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._notes: list[_Note] = []
        self._rows = 0

    @property
    def hears_of_done(self) -> bool:
        return True

    def __len__(self) -> int:
        """Rows."""
        return self._rows

    def begin(self, partition: TopicPartition, offset: int) -> None:
        if offset >= 0:
            self._add(_Note(partition, RecordOutcome.BEGUN, (offset,), self._now()))

    def note_done(self, records: Sequence[Record]) -> None:
        self._note(records, RecordOutcome.DONE)

    def note_skipped(self, records: Sequence[Record]) -> None:
        self._note(records, RecordOutcome.SKIPPED)

    def note_interrupted(self, records: Sequence[Record]) -> None:
        self._note(records, RecordOutcome.INTERRUPTED)

    def note_passed_over(self, rows: TakenRows) -> None:
        """What was skipped when these were taken."""
        self._add(_Note(TopicPartition(rows.topic, rows.partition), RecordOutcome.SKIPPED, rows.skipped, self._now()))

    def _note(self, records: Sequence[Record], outcome: RecordOutcome) -> None:
        """A window of rows is noted without making records of it."""
        if isinstance(records, TakenRows):
            place = TopicPartition(records.topic, records.partition)
            self._add(_Note(place, outcome, Packed(records.columns, len(records)), self._now()))
            return
        by_place: dict[TopicPartition, list[int]] = {}
        for record in records:
            by_place.setdefault(TopicPartition(record.topic, record.partition), []).append(record.offset)
        for place, offsets in by_place.items():
            self._add(_Note(place, outcome, offsets, self._now()))

    def note_failed(
        self, record: Record, outcome: RecordOutcome, copy: CopyPlace | None, error: BaseException | None
    ) -> None:
        """Why is with the copy."""
        del error
        place = TopicPartition(record.topic, record.partition)
        self._add(_Note(place, outcome, (record.offset,), self._now(), copy))

    def _add(self, note: _Note) -> None:
        self._notes.append(note)
        self._rows += len(note.offsets)

    def take(self) -> AuditRecords:
        """All that was noted since it was last taken."""
        notes, self._notes, self._rows = self._notes, [], 0
        return _columns(notes)


def _columns(notes: Sequence[_Note]) -> AuditRecords:
    many = np.array([len(note.offsets) for note in notes], np.int64)
    places = {place: number for number, place in enumerate(dict.fromkeys(note.place for note in notes))}
    copies = {copy: number for number, copy in enumerate(dict.fromkeys(n.copy for n in notes if n.copy is not None))}
    offsets = [_column(note.offsets) for note in notes]
    return AuditRecords(
        np.repeat(np.array([places[note.place] for note in notes], np.int32), many),
        np.concatenate(offsets) if offsets else np.empty(0, np.int64),
        np.repeat(np.array([_CODES[note.outcome] for note in notes], np.int8), many),
        np.repeat(np.array([note.settled_at for note in notes], np.int64), many),
        np.repeat(np.array([-1 if n.copy is None else copies[n.copy] for n in notes], np.int32), many),
        tuple(places),
        tuple(copies),
    )


def _column(offsets: Packed | Sequence[int]) -> npt.NDArray[np.int64]:
    return offsets.column() if isinstance(offsets, Packed) else np.array(offsets, np.int64)
