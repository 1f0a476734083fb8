"""The journal of outcomes: audit records, noted when records are settled, before they are written to a file.

Thread: one owner.

A record has one of four outcomes: done, skipped (for a newer one of its key), retried (a copy is in the retry topic) or
dead (a copy is in the error topic, or the last step has it). Two more kinds of rows are not outcomes: where processing
of a partition began (from there on every record must have an audit record), and which calls were abandoned before they
ended (their records may be handled more than once). Notes are kept as they come, one for all records that were settled
together, and become columns when they are taken. Never writes. It is here, below the lanes that note the outcomes; the
files are written above them, in `audit`.
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
from multilane.wire.records.window_rows import WindowRows


class RecordOutcome(StrEnum):
    """The kind of an audit record."""

    DONE = "done"
    SKIPPED = "skipped"
    RETRIED = "retried"
    DEAD = "dead"
    BEGUN = "begun"  # of a partition: processing began at this offset
    INTERRUPTED = "interrupted"  # its call was abandoned before it ended: it may have run, and is redelivered


OUTCOMES = tuple(RecordOutcome)
_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}


class StoredCopy(NamedTuple):
    """Where the copy of a record is stored. An offset below 0 is not known."""

    topic: str
    partition: int
    offset: int


class _Note(NamedTuple):
    origin: TopicPartition
    outcome: RecordOutcome
    offsets: Packed | Sequence[int]
    settled_at: int
    copy: StoredCopy | None = None


@dataclass(frozen=True, slots=True)
class AuditRecords:
    """Columns of equal length, in the order in which the records were settled. `place` and `copy` are indexes into
    `places` and `copies`; a copy of -1 means none. Times are microseconds since 1970."""

    place: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    outcome: npt.NDArray[np.int8]  # index into OUTCOMES
    settled_at: npt.NDArray[np.int64]
    copy: npt.NDArray[np.int32]
    places: tuple[TopicPartition, ...]
    copies: tuple[StoredCopy, ...]

    def __len__(self) -> int:
        return len(self.offset)


class Notes(Protocol):
    """Is notified of each record's outcome, right before the record is settled."""

    @property
    def wants_done(self) -> bool:
        """Whether it is notified of `done` records, too."""

    def note_done(self, records: Sequence[Record]) -> None: ...
    def note_skipped(self, records: Sequence[Record]) -> None: ...
    def note_skipped_rows(self, rows: TakenRows) -> None: ...
    def note_interrupted(self, records: Sequence[Record]) -> None: ...
    def note_failed(
        self, record: Record, outcome: RecordOutcome, copy: StoredCopy | None, error: BaseException | None
    ) -> None: ...


class RecordJournal:
    """Notes that wait to be written. `now` returns microseconds since 1970 and must not go back: the audit judges the
    order of a key's records by it."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._notes: list[_Note] = []
        self._rows = 0

    @property
    def wants_done(self) -> bool:
        return True

    def __len__(self) -> int:
        """The number of rows."""
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

    def note_skipped_rows(self, rows: TakenRows) -> None:
        """The rows that were skipped when these were taken."""
        self._add(_Note(TopicPartition(rows.topic, rows.partition), RecordOutcome.SKIPPED, rows.skipped, self._now()))

    def _note(self, records: Sequence[Record], outcome: RecordOutcome) -> None:
        """A window of rows is noted without creating record objects."""
        if isinstance(records, WindowRows):
            origin = TopicPartition(records.topic, records.partition)
            self._add(_Note(origin, outcome, records.packed_offsets(), self._now()))
            return
        by_partition: dict[TopicPartition, list[int]] = {}
        for record in records:
            by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(record.offset)
        for origin, offsets in by_partition.items():
            self._add(_Note(origin, outcome, offsets, self._now()))

    def note_failed(
        self, record: Record, outcome: RecordOutcome, copy: StoredCopy | None, error: BaseException | None
    ) -> None:
        """Without the error, which is in the copy's headers."""
        del error
        origin = TopicPartition(record.topic, record.partition)
        self._add(_Note(origin, outcome, (record.offset,), self._now(), copy))

    def _add(self, note: _Note) -> None:
        self._notes.append(note)
        self._rows += len(note.offsets)

    def take(self) -> AuditRecords:
        """All notes since the last call."""
        notes, self._notes, self._rows = self._notes, [], 0
        return _columns(notes)


def _columns(notes: Sequence[_Note]) -> AuditRecords:
    many = np.array([len(note.offsets) for note in notes], np.int64)
    places = {origin: number for number, origin in enumerate(dict.fromkeys(note.origin for note in notes))}
    copies = {copy: number for number, copy in enumerate(dict.fromkeys(n.copy for n in notes if n.copy is not None))}
    offsets = [_column(note.offsets) for note in notes]
    return AuditRecords(
        np.repeat(np.array([places[note.origin] for note in notes], np.int32), many),
        np.concatenate(offsets) if offsets else np.empty(0, np.int64),
        np.repeat(np.array([_CODES[note.outcome] for note in notes], np.int8), many),
        np.repeat(np.array([note.settled_at for note in notes], np.int64), many),
        np.repeat(np.array([-1 if n.copy is None else copies[n.copy] for n in notes], np.int32), many),
        tuple(places),
        tuple(copies),
    )


def _column(offsets: Packed | Sequence[int]) -> npt.NDArray[np.int64]:
    return offsets.column() if isinstance(offsets, Packed) else np.array(offsets, np.int64)
