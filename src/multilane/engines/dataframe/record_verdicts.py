"""The outcome of each record of a partition.

Thread: loop (one owner).

Owns the outcomes until they are taken. Never stores a success: a settled record without a note is done. So the usual
case costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from multilane.commit.journal import RecordOutcome, StoredCopy
from multilane.outcome.headers import described
from multilane.wire.records.keyed_rows import TakenRows
from multilane.wire.records.record import Record


class RecordVerdict(NamedTuple):
    outcome: RecordOutcome
    error: str | None = None


DONE = RecordVerdict(RecordOutcome.DONE)
_SKIPPED = RecordVerdict(RecordOutcome.SKIPPED)


class RecordVerdicts:
    """The notes of one partition."""

    def __init__(self) -> None:
        self._noted: dict[int, RecordVerdict] = {}  # by offset

    @property
    def wants_done(self) -> bool:
        return False

    def note_done(self, records: Sequence[Record]) -> None:
        """Records without a note are done."""

    def note_skipped(self, records: Sequence[Record]) -> None:
        self._noted.update((record.offset, _SKIPPED) for record in records)

    def note_skipped_rows(self, rows: TakenRows) -> None:
        self._noted.update(dict.fromkeys(rows.skipped.column().tolist(), _SKIPPED))

    def note_interrupted(self, records: Sequence[Record]) -> None:
        """Ignored: the record is redelivered, or fails and is noted then."""

    def note_failed(
        self, record: Record, outcome: RecordOutcome, copy: StoredCopy | None, error: BaseException | None
    ) -> None:
        del copy
        self._noted[record.offset] = RecordVerdict(outcome, None if error is None else described(error).decode())

    def take(self, offsets: Iterable[int]) -> list[RecordVerdict]:
        """Remove and return the outcomes of settled records."""
        if not self._noted:
            return [DONE for _ in offsets]
        return [self._noted.pop(offset, DONE) for offset in offsets]
