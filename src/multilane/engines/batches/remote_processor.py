"""A team whose lanes are in a Spark worker, as its member in the driver sees it.

Thread: loop (one owner, the board's).

Owns the accounts of its partitions. It is lent to a task for a while, comes back with what is left, and is lent again;
when the group wants its partitions back it is asked for, and is lent no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from multilane.clock import Clock
from multilane.commit.ledger import CommitPoint
from multilane.engines.batches.messages import HeldRecord, PartitionLease, Says
from multilane.engines.batches.remote_progress import RemoteProgress
from multilane.lanes.assignment import Starts
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

Tried = dict[tuple[str, int], Record]

_GRACE: Final = 2.0  # seconds beyond a deadline, for the words that tell how it ended


class RemoteProcessor:
    def __init__(
        self,
        number: int,
        consumer: str,
        starts: Starts,
        clock: Clock,
        ask_back: Callable[[RemoteProcessor, float], None],
    ) -> None:
        """`ask_back` tells whoever has it to give it back within so many seconds."""
        self.number = number
        self.consumer = consumer
        self.borrower: Says | None = None
        self.settled = 0
        self.is_wanted_back = False
        self._clock = clock
        self._ask_back = ask_back
        self._accounts = {p: RemoteProgress(start) for p, start in starts.items()}
        # The ids of its topics.
        self._logs = {p.topic: start.topic_id for p, start in starts.items() if start.topic_id is not None}
        self._began_again: dict[TopicPartition, int] = {}  # how often its borrower has
        self._held: dict[HeldRecord, Says | None] = {}  # and who is at it
        self._tried: Tried = {}
        self._tried_since: Tried = {}  # by former borrowers, since it was lent
        self._settled_before = 0
        self._is_free = asyncio.Event()
        self._is_free.set()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._accounts)

    def commit_point(self, partition: TopicPartition) -> CommitPoint:
        return self._accounts[partition].place

    def has_work(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether the logs, which end there, have something for its next borrower. Where the last one settled records
        more have probably come since: to wait for a look at the logs would keep them waiting."""
        return self.settled > self._settled_before or any(
            account.begins < ends.get(p, 0) for p, account in self._accounts.items()
        )

    def is_beyond(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether a log ends before its place: it was cut or made anew, and whoever reads it notices."""
        return any(account.begins > ends[p] for p, account in self._accounts.items() if p in ends)

    def note_ids(self, topic_ids: Mapping[str, UUID]) -> frozenset[str]:
        """Which of its topics have another id than before: they were made again, and its places are in the old ones.
        One whose id was not known has this one."""
        told = {topic: topic_ids[topic] for topic in {p.topic for p in self._accounts} & topic_ids.keys()}
        self._logs = told | self._logs
        return frozenset(topic for topic, topic_id in told.items() if self._logs[topic] != topic_id)

    @property
    def holders(self) -> list[Says]:
        """Who has it, or is still at records of it."""
        return [who for who in dict.fromkeys([self.borrower, *self._held.values()]) if who is not None]

    # --- lending -----------------------------------------------------------------------------------------------------

    def lend(self, borrower: Says) -> PartitionLease:
        self.borrower = borrower
        self._settled_before = self.settled
        self._is_free.clear()
        self._tried_since = {}
        self._began_again = {}
        places = {p: account.lend() for p, account in self._accounts.items()}
        tried = tuple(self._tried.values())
        return PartitionLease(self.number, self.consumer, places, tuple(self._held), tried, logs=dict(self._logs))

    def tell(self, unit: PartitionLease) -> None:
        """How far its borrower is."""
        for partition, again in unit.began_again.items():
            if again.times > self._began_again.get(partition, 0):
                self._began_again[partition] = again.times
                self._forget_from(partition, again.offset)
        for partition, place in unit.places.items():
            self._accounts[partition].tell(place)
        self.settled = self._settled_before + unit.settled

    def _forget_from(self, partition: TopicPartition, offset: int) -> None:
        """What was there is no more: whatever comes of it counts for nothing, and which log it is has to be asked."""
        self._logs.pop(partition.topic, None)
        self._accounts[partition].forget_from(offset)
        self._held = {r: who for r, who in self._held.items() if r.partition != partition or r.offset < offset}
        self._tried = _without(self._tried, partition, offset)
        self._tried_since = _without(self._tried_since, partition, offset)

    def give_back(self, unit: PartitionLease) -> None:
        """It comes back, perhaps without some records."""
        self.tell(unit)
        self._tried = {(record.topic, record.offset): record for record in unit.tried} | self._tried_since
        for record in unit.held:
            self._held[record] = self.borrower
            self._accounts[record.partition].hold([record.offset])
        self.borrower = None
        self._look_whether_free()

    def release(self, record: HeldRecord, by: Says, *, is_settled: bool) -> bool:
        """A former borrower is not at this record any more; False when it is not the one who was."""
        if self._held.get(record) is not by:
            return False
        del self._held[record]
        self._accounts[record.partition].release(record.offset, is_settled=is_settled)
        self.settled += is_settled
        self._settled_before += is_settled
        self._look_whether_free()
        return True

    def try_again(self, records: Iterable[Record]) -> None:
        """These were tried, and are to be tried again with these headers."""
        self._tried_since |= {(record.topic, record.offset): record for record in records}
        self._tried |= self._tried_since

    def reclaim(self, borrower: Says) -> None:
        """Whoever had it has it no more, and what it may say of it does not count."""
        if self.borrower is borrower:
            self.borrower = None
            self._look_whether_free()

    def lose(self, borrower: Says) -> None:
        """A borrower is gone: what it was at is undone."""
        self.reclaim(borrower)
        for record in [record for record, holder in self._held.items() if holder is borrower]:
            self.release(record, borrower, is_settled=False)

    def _look_whether_free(self) -> None:
        if self.borrower is None and not self._held:
            self._is_free.set()

    # --- the end -----------------------------------------------------------------------------------------------------

    async def drain(self, deadline: float) -> None:
        """Whoever has it, or records of it, ends what is in work until the deadline."""
        self.is_wanted_back = True
        left = max(0.0, deadline - self._clock.monotonic())
        self._ask_back(self, left)
        await asyncio.wait([waiting := asyncio.ensure_future(self._is_free.wait())], timeout=left + _GRACE)
        waiting.cancel()


def _without(tried: Tried, partition: TopicPartition, offset: int) -> Tried:
    return {
        place: record
        for place, record in tried.items()
        if (record.topic, record.partition) != partition or record.offset < offset
    }
