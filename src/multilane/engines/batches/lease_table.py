"""Who has what: the units of a run, the loans of its batches, and the words that are due.

Thread: loop (one owner, the keeper).

A batch lends every unit there is, each to one of its tasks. A task that is started again has the same loan, from where
its units are by then; what an earlier try at it still says does not count. Never talks to anybody itself: it is given
lines, and calls what they are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from multilane.clock import Clock
from multilane.engines.batches.messages import HeldRecord, PartitionLease, Says, TaskLease, held_to_json
from multilane.engines.batches.remote_processor import RemoteProcessor
from multilane.errors import LineLost
from multilane.lanes.assignment import Starts
from multilane.logs import logger
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

log = logger(__name__)

_UNKNOWN: Final = (1 << 63) - 1
_SHORTEST: Final = 0.5  # seconds of work that are worth a loan


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How long a batch works, and waits."""

    seconds: float = 20.0
    patience: float = 0.5  # for what is in work then
    carrying: float = 10.0  # seconds at most while calls are carried over: their keys may wait for the next batch


@dataclass(slots=True)
class _Task:
    """One of a batch: which units it has, and who works on them."""

    units: list[int]
    seconds: float
    until: float
    line: Says | None = None


@dataclass(slots=True)
class LeaseTable:
    clock: Clock
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    on_change: Callable[[], object] = lambda: None
    _processors: dict[int, RemoteProcessor] = field(default_factory=dict)
    _ends: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    _tasks: dict[int, _Task] = field(default_factory=dict)
    _last_processor: int = 0
    _last_task: int = 0

    # --- units -------------------------------------------------------------------------------------------------------

    def new_processor(self, consumer: str, starts: Starts) -> RemoteProcessor:
        self._last_processor += 1
        processor = RemoteProcessor(self._last_processor, consumer, starts, self.clock, self._ask_back)
        self._processors[processor.number] = processor
        self.end_loans()  # it is lent with the next batch: that may come now
        return processor

    def note_ends(self, consumer: str, ends: Mapping[TopicPartition, int]) -> None:
        """Where the logs of a consumer end."""
        self._ends |= {(consumer, partition): end for partition, end in ends.items()}
        own = [processor for processor in self._free() if processor.consumer == consumer] if not self._tasks else []
        if self.has_work or any(processor.is_beyond(ends) for processor in own):
            self.on_change()

    def note_unknown_ends(self, consumer: str, partitions: Iterable[TopicPartition]) -> None:
        """They cannot be asked for now: whoever reads the logs finds out."""
        self.note_ends(consumer, dict.fromkeys(partitions, _UNKNOWN))

    @property
    def is_lent(self) -> bool:
        return bool(self._tasks)

    @property
    def has_work(self) -> bool:
        """Also while somebody is at something that was carried over: Spark ends workers that have no task for long."""
        return not self._tasks and any(
            processor.holders or processor.has_work(self._ends_of(processor)) for processor in self._free()
        )

    def _ends_of(self, processor: RemoteProcessor) -> dict[TopicPartition, int]:
        return {p: self._ends.get((processor.consumer, p), 0) for p in processor.partitions}

    def _free(self) -> list[RemoteProcessor]:
        return [
            processor
            for processor in self._processors.values()
            if processor.borrower is None and not processor.is_wanted_back
        ]

    # --- loans -------------------------------------------------------------------------------------------------------

    def end_batch(self) -> None:
        """Spark has ended the tasks of the batch, also one that could not reach anybody."""
        is_left = bool(self._tasks)
        for number in list(self._tasks):
            self._close(number)
        if is_left and self.has_work:
            self.on_change()

    def plan(self, tasks: int) -> list[int]:
        """A batch: the numbers of its tasks. Those of the batch before have ended."""
        for number in list(self._tasks):
            self._close(number)
        self._processors = {
            n: processor
            for n, processor in self._processors.items()
            if not (processor.is_wanted_back and not processor.holders)
        }
        free = sorted(
            self._free(), key=lambda processor: (processor.consumer, min(p.partition for p in processor.partitions))
        )
        made = []
        # Each executor ends workers that have no task for long, and what was carried over may be in any of them.
        has_holders = any(processor.holders for processor in free)
        seconds = min(self.terms.seconds, self.terms.carrying) if has_holders else self.terms.seconds
        for at in range(tasks if has_holders else min(tasks, len(free))):
            self._last_task += 1
            units = [processor.number for processor in free[at::tasks]]
            self._tasks[self._last_task] = _Task(units, seconds, self.clock.monotonic() + seconds)
            made.append(self._last_task)
        return made

    def lend(self, number: int, line: Says) -> TaskLease | None:
        """A task has begun, or was started again; None when nobody waits for it any more."""
        task = self._tasks.get(number)
        if task is None:
            return None
        former, now = task.line, self.clock.monotonic()
        processors = [self._processors[unit] for unit in task.units if unit in self._processors]
        if former is None:
            task.until = now + task.seconds  # it may have waited for a slot
        elif former is not line:
            self._reclaim(processors, former)
        task.line = line
        units = tuple(processor.lend(line) for processor in processors if not processor.is_wanted_back)
        return TaskLease(number, max(_SHORTEST, task.until - now), self.terms.patience, units)

    def tell(self, units: Iterable[PartitionLease], line: Says) -> None:
        for processor, unit in self._lent_to(units, line):
            processor.tell(unit)

    def give_back(self, units: Iterable[PartitionLease], line: Says) -> None:
        for processor, unit in self._lent_to(units, line):
            processor.give_back(unit)

    def release(self, number: int, records: Iterable[HeldRecord], line: Says, *, is_settled: bool) -> None:
        """Former borrowers are not at these any more. Where they are settled, their keys go on at once."""
        processor = self._processors.get(number)
        if processor is None:
            return
        released = [record for record in records if processor.release(record, line, is_settled=is_settled)]
        if released and is_settled:
            _say(processor.borrower, "freed", unit=number, held=held_to_json(released))

    def try_again(self, number: int, tried: Iterable[Record]) -> None:
        processor = self._processors.get(number)
        if processor is not None:
            processor.try_again(tried)

    def close(self, number: int, line: Says) -> None:
        """A task says that it is over."""
        task = self._tasks.get(number)
        if task is not None and task.line is line:
            self._close(number)
            if self.has_work:
                self.on_change()

    def drop(self, number: int) -> None:
        """A task that will have no loan any more."""
        if number in self._tasks:
            self._close(number)

    def lose(self, line: Says) -> None:
        """A worker is gone. Its task may be started again, and then has its loan again."""
        for processor in self._processors.values():
            processor.lose(line)
        for task in self._tasks.values():
            if task.line is line:
                task.line = None

    def _close(self, number: int) -> None:
        task = self._tasks.pop(number)
        if task.line is not None:
            self._reclaim([self._processors[unit] for unit in task.units if unit in self._processors], task.line)

    def _reclaim(self, processors: Iterable[RemoteProcessor], line: Says) -> None:
        """They have not come back from there, and nobody waits for it any more."""
        for processor in processors:
            if processor.borrower is line:
                log.warning("%s did not come back from its task", sorted(map(str, processor.partitions)))
                processor.reclaim(line)
                _say(line, "back", unit=processor.number, seconds=0.0)

    def _lent_to(self, units: Iterable[PartitionLease], line: Says) -> list[tuple[RemoteProcessor, PartitionLease]]:
        """Those that this worker has; what others say of them does not count."""
        known = [(self._processors.get(unit.number), unit) for unit in units]
        return [(processor, unit) for processor, unit in known if processor is not None and processor.borrower is line]

    # --- words -------------------------------------------------------------------------------------------------------

    def end_loans(self) -> None:
        """The batch may end now."""
        for task in self._tasks.values():
            _say(task.line, "end")

    def _ask_back(self, processor: RemoteProcessor, seconds: float) -> None:
        for line in processor.holders:
            _say(line, "back", unit=processor.number, seconds=seconds)


def _say(line: Says | None, kind: str, **fields: Any) -> None:
    if line is not None:
        with suppress(LineLost):  # whoever reads it hears of it
            line.send(kind, **fields)
