"""Replays selected records of an error topic, each once, in the order of their partitions, at a limited rate.

Thread: application (blocking).

Marks acknowledged records, batch by batch and up to the first failure: an interrupted replay repeats at most one batch.
A record goes to the requested topic, or to the one in its headers if that is allowed. Owns its producer. Never changes
the error topic.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from multilane.client.produce.producer import Producer, RecordMetadata
from multilane.clock import Clock, SystemClock
from multilane.errors import MultilaneError
from multilane.outcome.error_policy import republished_headers
from multilane.outcome.failure_headers import target_in
from multilane.outcome.redrive import Filter, Groups, ReplayMarks, ReplayPace

if TYPE_CHECKING:
    from multilane.error_consumer.reading import ErrorLog
    from multilane.types import TopicPartition
    from multilane.wire.records.record import Record

_PART: Final = 500


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What to replay, and where to. `rate`: records a second; None: unlimited."""

    wanted: Filter = field(default_factory=Filter)
    to: str | None = None
    allowed: frozenset[str] = frozenset()
    rate: float | None = None

    def target(self, record: Record) -> str | None:
        if self.to is not None:
            return self.to
        named = target_in(record.headers)
        return named if named in self.allowed else None


@dataclass(slots=True)
class ReplayReport:
    """Numbers of records, by what the replay did or would do."""

    replayed: int = 0
    skipped: int = 0  # replayed before
    unwanted: int = 0
    targets: Counter[str] = field(default_factory=Counter)
    not_allowed: Counter[str] = field(default_factory=Counter)  # by the target in their headers
    groups: Groups = field(default_factory=Groups)


class Chosen(NamedTuple):
    """A record to replay. The offsets from `first` on are marked with it, because none between them exists."""

    record: Record
    target: str
    first: int


class Replay:
    def __init__(self, log: ErrorLog, options: ReplayOptions, *, clock: Clock | None = None) -> None:
        self._log = log
        self._options = options
        self._clock = clock or SystemClock()
        self._pace = ReplayPace(options.rate, self._clock.monotonic())
        self._pause = threading.Event()
        self.report = ReplayReport()

    def rehearse(self) -> ReplayReport:
        """Count the records to replay. Sends and marks nothing."""
        for partition, marks in self._log.marks().items():
            self.report.replayed += sum(1 for _ in self._chosen(partition, marks))
        return self.report

    def perform(self, properties: Mapping[str, object], on_part: Callable[[int], object] = id) -> ReplayReport:
        """Replay and mark. `on_part` is called with the number of records done so far."""
        with Producer(properties) as producer:
            for partition, marks in self._log.marks().items():
                chosen = self._chosen(partition, marks)
                while part := list(islice(chosen, self._room())):
                    self._send(producer, partition, marks, part)
                    on_part(self.report.replayed)
        return self.report

    def _chosen(self, partition: TopicPartition, marks: ReplayMarks) -> Iterator[Chosen]:
        first = marks.frontier
        for record in self._log.records(partition, first):
            if record.offset in marks:
                self.report.skipped += 1
            elif not self._options.wanted.wants(record):
                self.report.unwanted += 1
            elif (target := self._options.target(record)) is None:
                self.report.not_allowed[target_in(record.headers) or ""] += 1
            else:
                self.report.targets[target] += 1
                self.report.groups.add(record)
                yield Chosen(record, target, first)
            first = record.offset + 1

    def _room(self) -> int:
        """Wait until the rate allows records. Ctrl-C ends the wait."""
        while (room := self._pace.room(self._clock.monotonic(), _PART)) == 0:
            self._pause.wait(self._pace.wait(self._clock.monotonic()))
        return room

    def _send(self, producer: Producer, partition: TopicPartition, marks: ReplayMarks, part: list[Chosen]) -> None:
        after = marks.copy()
        for record, _, first in part:
            after.add(first, record.offset)
        self._log.check_marks(partition, after)
        stored, failure = _stored(producer, part)
        for record, _, first in part[:stored]:
            marks.add(first, record.offset)
        if stored:
            self._log.keep_marks(partition, marks)
        self._pace.note(stored)
        self.report.replayed += stored
        if failure is not None:
            raise failure


def _stored(producer: Producer, part: Sequence[Chosen]) -> tuple[int, Exception | None]:
    """How many are stored, from the first on, and the error that stopped it."""
    sent: list[Future[RecordMetadata]] = []
    failure: Exception | None = None
    for record, target, _ in part:
        try:
            sent.append(producer.send(target, record.value, record.key, republished_headers(record.headers)))
        except MultilaneError as error:  # wait for those that were sent
            failure = error
            break
    for stored, future in enumerate(sent):
        try:
            future.result()
        except MultilaneError as error:
            return stored, error
    return len(sent), failure
