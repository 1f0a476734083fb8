"""Reports the failed records of one consumer: each failure to a sink, and its outcome as a counter.

Thread: loop.

Every failure has one outcome: retried (as a copy, or in place) or dead. Records that only follow their key into the
retry topic have not failed; they are counted separately.
"""

from __future__ import annotations

from multilane.commit.journal import RecordOutcome
from multilane.lanes.failure_log import FailureSink
from multilane.lanes.progress import DEAD, FOLLOWED, REPEATED, RETRIED
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.wire.records.record import Record


class FailureReport:
    def __init__(self, consumer: str, sink: FailureSink, observer: Observer = NO_OBSERVER) -> None:
        self._consumer = consumer
        self._sink = sink
        self._observer = observer

    def failed(self, record: Record, error: BaseException) -> None:
        self._sink.note(self._consumer, record, error)

    def counted(self, record: Record, error: BaseException) -> None:
        """Its call has failed, and no outage keeps it in place."""
        self._observer.count(
            "lanes.records.failed", consumer=self._consumer, error=type(error).__name__, topic=record.topic
        )

    def repeated(self) -> None:
        """The record is retried in place."""
        self._count(RETRIED)
        self._count(REPEATED)

    def settled(self, outcome: RecordOutcome, error: BaseException | None) -> None:
        """The copy is stored, or the last step has returned. Without an error the record followed its key."""
        if error is None:
            self._count(FOLLOWED)
        else:
            self._count(RETRIED if outcome is RecordOutcome.RETRIED else DEAD)

    def _count(self, name: str) -> None:
        self._observer.count(name, consumer=self._consumer)
