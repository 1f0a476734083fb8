"""Which worker holds which partition lease: the processors of a run and the tasks of its current batch.

Thread: loop (one owner, the lease coordinator).

A batch leases out all partitions that can be leased, each to one of its tasks. A restarted task gets the same leases,
from the progress that was reported so far; messages of its earlier attempt no longer count. Opens no connection itself:
it is given channels, and sends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from multilane.clock import Clock
from multilane.engines.batches.messages import (
    HeldRecord,
    PartitionLease,
    TaskLease,
    ToWorker,
    WorkerChannel,
    held_to_json,
)
from multilane.engines.batches.remote_processor import LeaseHolder, RemoteProcessor
from multilane.engines.batches.states import GRANTABLE, LeaseState
from multilane.errors import ChannelLost
from multilane.lanes.assignment import Starts
from multilane.logs import logger
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

log = logger(__name__)

_UNKNOWN: Final = (1 << 63) - 1
_SHORTEST: Final = 0.5  # seconds that are worth a lease


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How long a batch processes, and waits."""

    seconds: float = 20.0
    patience: float = 0.5  # for calls in flight when the time is up
    carrying: float = 10.0  # limit of `seconds` while calls are carried over: their keys may wait for the next batch


@dataclass(slots=True)
class _Task:
    """A task of the batch: its leases, by number, and its worker."""

    leases: list[int]
    seconds: float
    until: float
    channel: WorkerChannel | None = None


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

    # --- processors --------------------------------------------------------------------------------------------------

    def new_processor(self, consumer: str, starts: Starts) -> RemoteProcessor:
        """Of a consumer that shares its group member with no other one."""
        [processor] = self.new_processors(consumer, {consumer: starts})
        return processor

    def new_processors(self, member: str, starts: Mapping[str, Starts]) -> list[RemoteProcessor]:
        """For each of these consumers, which share a group member and read the same partition."""
        bundle, made = self._last_processor + 1, []
        for consumer, own in starts.items():
            self._last_processor += 1
            holder = LeaseHolder(member, consumer, bundle)
            made.append(RemoteProcessor(self._last_processor, holder, own, self.clock, self._revoke))
        self._processors |= {processor.number: processor for processor in made}
        self.end_tasks()  # the next batch leases them out: that may start now
        return made

    def note_ends(self, member: str, ends: Mapping[TopicPartition, int]) -> None:
        """The end offsets of the logs that a group member reads."""
        self._ends |= {(member, partition): end for partition, end in ends.items()}
        idle = [] if self._tasks else self._grantable()
        own = [processor for processor in idle if processor.member == member]
        if self.has_work or any(processor.is_past_end(ends) for processor in own):
            self.on_change()

    def note_unknown_ends(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        """Brokers do not return the ends now: a worker that reads the logs finds them."""
        self.note_ends(member, dict.fromkeys(partitions, _UNKNOWN))

    @property
    def is_leased(self) -> bool:
        """Whether a batch runs."""
        return bool(self._tasks)

    @property
    def has_work(self) -> bool:
        """True also while a call is carried over: Spark ends workers that have no task for a long time."""
        return not self._tasks and any(
            processor.state is LeaseState.CARRIED or processor.has_work(self._ends_of(processor))
            for processor in self._grantable()
        )

    def _ends_of(self, processor: RemoteProcessor) -> dict[TopicPartition, int]:
        return {p: self._ends.get((processor.member, p), 0) for p in processor.partitions}

    def _grantable(self) -> list[RemoteProcessor]:
        return [processor for processor in self._processors.values() if processor.state in GRANTABLE]

    # --- leases ------------------------------------------------------------------------------------------------------

    def end_batch(self) -> None:
        """Spark has ended the tasks of the batch, also those that could not connect."""
        had_tasks = bool(self._tasks)
        for number in list(self._tasks):
            self._close(number)
        if had_tasks and self.has_work:
            self.on_change()

    def plan(self, tasks: int) -> list[int]:
        """A new batch: the numbers of its tasks. The tasks of the last batch have ended."""
        for number in list(self._tasks):
            self._close(number)
        self._processors = {
            n: processor for n, processor in self._processors.items() if processor.state is not LeaseState.REVOKED
        }
        grantable = self._grantable()
        bundles = _bundled(grantable)
        numbers = []
        # Executors end workers that have no task for a long time. Any of these may carry calls over, so all get a task.
        carries = any(processor.state is LeaseState.CARRIED for processor in grantable)
        seconds = min(self.terms.seconds, self.terms.carrying) if carries else self.terms.seconds
        for at in range(tasks if carries else min(tasks, len(bundles))):
            self._last_task += 1
            leases = [processor.number for bundle in bundles[at::tasks] for processor in bundle]
            self._tasks[self._last_task] = _Task(leases, seconds, self.clock.monotonic() + seconds)
            numbers.append(self._last_task)
        return numbers

    def grant(self, number: int, channel: WorkerChannel) -> TaskLease | None:
        """A task has begun, or was restarted. None when its batch is over."""
        task = self._tasks.get(number)
        if task is None:
            return None
        former, now = task.channel, self.clock.monotonic()
        processors = [self._processors[lease] for lease in task.leases if lease in self._processors]
        if former is None:
            task.until = now + task.seconds  # it may have waited for a slot
        elif former is not channel:
            self._expire(processors, former)
        task.channel = channel
        leases = tuple(processor.grant(channel) for processor in processors if not processor.is_revoked)
        return TaskLease(number, max(_SHORTEST, task.until - now), self.terms.patience, leases)

    def note_progress(self, leases: Iterable[PartitionLease], channel: WorkerChannel) -> None:
        for processor, lease in self._leased_to(leases, channel):
            processor.note_progress(lease)

    def take_back(self, leases: Iterable[PartitionLease], channel: WorkerChannel) -> None:
        """The worker returns these."""
        for processor, lease in self._leased_to(leases, channel):
            processor.take_back(lease)

    def release(self, number: int, records: Iterable[HeldRecord], channel: WorkerChannel, *, is_settled: bool) -> None:
        """A former worker no longer processes these records. If they are settled, their keys resume at once."""
        processor = self._processors.get(number)
        if processor is None:
            return
        released = [record for record in records if processor.release(record, channel, is_settled=is_settled)]
        if released and is_settled:
            _send(processor.worker, ToWorker.RELEASED, unit=number, held=held_to_json(released))

    def note_retries(self, number: int, retries: Iterable[Record]) -> None:
        processor = self._processors.get(number)
        if processor is not None:
            processor.note_retries(retries)

    def close(self, number: int, channel: WorkerChannel) -> None:
        """A task reports that it is over."""
        task = self._tasks.get(number)
        if task is not None and task.channel is channel:
            self._close(number)
            if self.has_work:
                self.on_change()

    def drop(self, number: int) -> None:
        """A task that gets no leases any more."""
        if number in self._tasks:
            self._close(number)

    def lose(self, channel: WorkerChannel) -> None:
        """A worker is gone. Spark may restart its task, which then gets its leases again."""
        for processor in self._processors.values():
            processor.lose(channel)
        for task in self._tasks.values():
            if task.channel is channel:
                task.channel = None

    def _close(self, number: int) -> None:
        task = self._tasks.pop(number)
        if task.channel is not None:
            self._expire([self._processors[lease] for lease in task.leases if lease in self._processors], task.channel)

    def _expire(self, processors: Iterable[RemoteProcessor], channel: WorkerChannel) -> None:
        """The worker has not returned them, and its attempt no longer counts."""
        for processor in processors:
            if processor.worker is channel:
                log.warning("the task of %s ended without returning its lease", sorted(map(str, processor.partitions)))
                processor.expire(channel)
                _send(channel, ToWorker.REVOKE, unit=processor.number, seconds=0.0)

    def _leased_to(
        self, leases: Iterable[PartitionLease], channel: WorkerChannel
    ) -> list[tuple[RemoteProcessor, PartitionLease]]:
        """Those that this worker holds; messages of others about them do not count."""
        known = [(self._processors.get(lease.number), lease) for lease in leases]
        return [(held, lease) for held, lease in known if held is not None and held.worker is channel]

    # --- messages to workers -----------------------------------------------------------------------------------------

    def end_tasks(self) -> None:
        """The batch may end now."""
        for task in self._tasks.values():
            _send(task.channel, ToWorker.END)

    def _revoke(self, processor: RemoteProcessor, seconds: float) -> None:
        for channel in processor.workers:
            _send(channel, ToWorker.REVOKE, unit=processor.number, seconds=seconds)


def _bundled(processors: Iterable[RemoteProcessor]) -> list[list[RemoteProcessor]]:
    """Those whose leases go to the same task, in the order in which tasks get them."""
    bundles: dict[int, list[RemoteProcessor]] = {}
    for processor in processors:
        bundles.setdefault(processor.bundle, []).append(processor)
    return sorted(bundles.values(), key=lambda some: (some[0].member, min(p.partition for p in some[0].partitions)))


def _send(channel: WorkerChannel | None, kind: str, **fields: Any) -> None:
    if channel is not None:
        with suppress(ChannelLost):  # the thread that receives on it reports the loss
            channel.send(kind, **fields)
