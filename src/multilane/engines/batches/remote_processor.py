"""A processor whose lanes run in Spark workers, as the group member sees it.

Thread: loop (one owner, the lease table's).

Owns the progress of its partitions. It is leased to a task, returned with what is still in flight, and leased again.
When its partitions are drained, the lease is revoked, and it is never leased again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from multilane.clock import Clock
from multilane.commit.ledger import CommitPoint
from multilane.engines.batches.messages import HeldRecord, PartitionLease, WorkerChannel
from multilane.engines.batches.remote_progress import RemoteProgress
from multilane.engines.batches.states import LEASE_TRANSITIONS, UNUSED, LeaseState
from multilane.engines.moves import moved
from multilane.lanes.assignment import Starts
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

Retries = dict[tuple[str, int], Record]

_GRACE: Final = 2.0  # seconds beyond a deadline, for the message that reports the end


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Whose the lease is. Those of one `bundle` go to the same task: their partition is read once for all of them."""

    member: str  # the group member's name: the consumer's, or that of the triggers that share it
    consumer: str
    bundle: int


class RemoteProcessor:
    def __init__(
        self,
        number: int,
        holder: LeaseHolder,
        starts: Starts,
        clock: Clock,
        revoke: Callable[[RemoteProcessor, float], None],
    ) -> None:
        """`revoke` asks the workers to return their lease within so many seconds."""
        self.number = number
        self.consumer = holder.consumer
        self.member = holder.member
        self.bundle = holder.bundle
        self.on_log_reset: Callable[[TopicPartition, int], object] = lambda partition, offset: None
        self.worker: WorkerChannel | None = None  # the one that holds the lease
        self.settled = 0
        self.state = LeaseState.FREE
        self._clock = clock
        self._revoke = revoke
        self._progress = {p: RemoteProgress(start) for p, start in starts.items()}
        self._topic_ids = {p.topic: start.topic_id for p, start in starts.items() if start.topic_id is not None}
        self._log_resets: dict[TopicPartition, int] = {}  # their number, in this lease
        self._held: dict[HeldRecord, WorkerChannel | None] = {}  # and the former worker that processes it
        self._retries: Retries = {}
        self._late_retries: Retries = {}  # of former workers, since it was granted
        self._settled_before = 0
        self._is_unused = asyncio.Event()
        self._is_unused.set()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._progress)

    def commit_point(self, partition: TopicPartition) -> CommitPoint:
        return self._progress[partition].point

    def has_work(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether the logs, which end there, have records for the next worker. If the last one settled records, more
        have probably arrived since: they should not wait until the ends are looked up again."""
        return self.settled > self._settled_before or any(
            progress.begins < ends.get(p, 0) for p, progress in self._progress.items()
        )

    def is_past_end(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether a log ends below its position: it was cut or recreated, and the next worker notices that."""
        return any(progress.begins > ends[p] for p, progress in self._progress.items() if p in ends)

    def note_ids(self, topic_ids: Mapping[str, UUID]) -> frozenset[str]:
        """Returns its topics whose ids have changed: they were recreated, and the progress belongs to the old ones. An
        id that was not known is stored."""
        current = {topic: topic_ids[topic] for topic in {p.topic for p in self._progress} & topic_ids.keys()}
        self._topic_ids = current | self._topic_ids
        return frozenset(topic for topic, topic_id in current.items() if self._topic_ids[topic] != topic_id)

    @property
    def leased(self) -> tuple[RemoteProcessor, ...]:
        """Itself: see `RemoteTriggers`."""
        return (self,)

    @property
    def workers(self) -> list[WorkerChannel]:
        """The worker that holds the lease, and former ones that still process records of it."""
        return [worker for worker in dict.fromkeys([self.worker, *self._held.values()]) if worker is not None]

    # --- leases ------------------------------------------------------------------------------------------------------

    def grant(self, worker: WorkerChannel) -> PartitionLease:
        self.worker = worker
        self._move(LeaseState.GRANTED)
        self._settled_before = self.settled
        self._late_retries = {}
        self._log_resets = {}
        points = {p: progress.grant() for p, progress in self._progress.items()}
        retries, topic_ids = tuple(self._retries.values()), dict(self._topic_ids)
        return PartitionLease(self.number, self.consumer, points, tuple(self._held), retries, topic_ids=topic_ids)

    def note_progress(self, lease: PartitionLease) -> None:
        """The worker reports how far it is."""
        for partition, reset in lease.log_resets.items():
            if reset.times > self._log_resets.get(partition, 0):
                self._log_resets[partition] = reset.times
                self._forget_from(partition, reset.offset)
        for partition, point in lease.points.items():
            self._progress[partition].note(point)
        self.settled = self._settled_before + lease.settled

    def _forget_from(self, partition: TopicPartition, offset: int) -> None:
        """These records do not exist any more: their outcome does not count, and the topic's id has to be looked up."""
        self.forget_id(partition.topic)
        self._progress[partition].forget_from(offset)
        self._held = {r: worker for r, worker in self._held.items() if r.partition != partition or r.offset < offset}
        self._retries = _without(self._retries, partition, offset)
        self._late_retries = _without(self._late_retries, partition, offset)
        self.on_log_reset(partition, offset)

    def forget_id(self, topic: str) -> None:
        """It has to be looked up."""
        self._topic_ids.pop(topic, None)

    def take_back(self, lease: PartitionLease) -> None:
        """The worker returns it, perhaps with records still in flight."""
        self.note_progress(lease)
        self._retries = {(record.topic, record.offset): record for record in lease.retries} | self._late_retries
        for record in lease.held:
            self._held[record] = self.worker
            self._progress[record.partition].hold([record.offset])
        self.worker = None
        self._note_unheld()

    def release(self, record: HeldRecord, worker: WorkerChannel, *, is_settled: bool) -> bool:
        """A former worker no longer processes this record. False when another one does."""
        if self._held.get(record) is not worker:
            return False
        del self._held[record]
        self._progress[record.partition].release(record.offset, is_settled=is_settled)
        self.settled += is_settled
        self._settled_before += is_settled
        self._note_unheld()
        return True

    def note_retries(self, records: Iterable[Record]) -> None:
        """These failed at a former worker, and are to be retried with these headers."""
        self._late_retries |= {(record.topic, record.offset): record for record in records}
        self._retries |= self._late_retries

    def expire(self, worker: WorkerChannel) -> None:
        """The worker's lease has ended without being returned; later messages about it do not count."""
        if self.worker is worker:
            self.worker = None
            self._note_unheld()

    def lose(self, worker: WorkerChannel) -> None:
        """A worker is gone: its records in flight are undone."""
        self.expire(worker)
        for record in [record for record, holder in self._held.items() if holder is worker]:
            self.release(record, worker, is_settled=False)

    # --- its state ---------------------------------------------------------------------------------------------------

    @property
    def is_revoked(self) -> bool:
        return self.state in (LeaseState.REVOKING, LeaseState.REVOKED)

    def _note_unheld(self) -> None:
        """The lease was returned or has expired, or a former worker released a record."""
        if self.worker is None:
            if self.is_revoked:
                self._move(LeaseState.REVOKING if self._held else LeaseState.REVOKED)
            else:
                self._move(LeaseState.CARRIED if self._held else LeaseState.FREE)

    def _move(self, state: LeaseState) -> None:
        self.state = moved(LEASE_TRANSITIONS, self.state, state)
        if state in UNUSED:
            self._is_unused.set()
        else:
            self._is_unused.clear()

    # --- the end -----------------------------------------------------------------------------------------------------

    async def drain(self, deadline: float) -> None:
        """Workers that hold the lease or records of it have until the deadline to end their calls in flight."""
        self._move(LeaseState.REVOKED if self.state in UNUSED else LeaseState.REVOKING)
        left = max(0.0, deadline - self._clock.monotonic())
        self._revoke(self, left)
        await asyncio.wait([waiting := asyncio.ensure_future(self._is_unused.wait())], timeout=left + _GRACE)
        waiting.cancel()


def _without(retries: Retries, partition: TopicPartition, offset: int) -> Retries:
    return {
        key: record
        for key, record in retries.items()
        if (record.topic, record.partition) != partition or record.offset < offset
    }
