"""What became of each record of a partition, for those who want to know it of every one.

Thread: loop (one owner).

Records that succeed are not noted: whatever is settled and not noted here is done. So the usual way costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from multilane.commit.open_offsets import Offsets
from multilane.outcome.flow import LastStep, Publish
from multilane.outcome.headers import described
from multilane.wire.records.keyed_storage import Packed
from multilane.wire.records.record import Record


class Outcome(StrEnum):
    DONE = "done"
    SKIPPED = "skipped"  # by a select function, or for a newer one of its key
    RETRIED = "retried"  # its copy in the retry topic was acknowledged
    DEAD = "dead"  # its copy in the error topic was, or its last step has it


class Verdict(NamedTuple):
    outcome: Outcome
    error: str | None = None


DONE = Verdict(Outcome.DONE)
_SKIPPED = Verdict(Outcome.SKIPPED)


class Verdicts:
    def __init__(self, retry_topic: str | None) -> None:
        self._retry_topic = retry_topic
        self._noted: dict[int, Verdict] = {}  # by offset

    def note_taken_over(self, record: Record, error: BaseException, step: Publish | LastStep) -> None:
        is_retried = isinstance(step, Publish) and step.topic == self._retry_topic
        outcome = Outcome.RETRIED if is_retried else Outcome.DEAD
        self._noted[record.offset] = Verdict(outcome, described(error).decode())

    def note_skipped(self, offsets: Offsets) -> None:
        told = offsets.column().tolist() if isinstance(offsets, Packed) else offsets
        self._noted.update((int(offset), _SKIPPED) for offset in told)

    def take(self, offsets: Iterable[int]) -> list[Verdict]:
        """Of records that are settled. They are forgotten with it."""
        if not self._noted:
            return [DONE for _ in offsets]
        return [self._noted.pop(offset, DONE) for offset in offsets]
