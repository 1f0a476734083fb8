"""What became of each record of a partition, for those who want to know it of every one.

Thread: loop (one owner).

Records that succeed are not noted: whatever is settled and not noted here is done. So the usual way costs nothing.
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
        """What is not noted is done."""

    def note_skipped(self, records: Sequence[Record]) -> None:
        self._noted.update((record.offset, _SKIPPED) for record in records)

    def note_skipped_rows(self, rows: TakenRows) -> None:
        self._noted.update(dict.fromkeys(rows.skipped.column().tolist(), _SKIPPED))

    def note_interrupted(self, records: Sequence[Record]) -> None:
        """It comes again, or fails: that is noted."""

    def note_failed(
        self, record: Record, outcome: RecordOutcome, copy: StoredCopy | None, error: BaseException | None
    ) -> None:
        del copy
        self._noted[record.offset] = RecordVerdict(outcome, None if error is None else described(error).decode())

    def take(self, offsets: Iterable[int]) -> list[RecordVerdict]:
        """Of records that are settled. They are forgotten with it."""
        if not self._noted:
            return [DONE for _ in offsets]
        return [self._noted.pop(offset, DONE) for offset in offsets]
