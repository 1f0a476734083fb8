"""What a member of a group holds: partitions, each in the care of a team, wherever that team's lanes are.

Thread: loop (one owner).

Partitions come with the place where their work begins, and with what is settled beyond it; `check` holds that against
the log each time a team is about to pass over it. With `pairs` those of one number, of all topics, are one team,
which is formed when all are there; until then they wait. Owns the teams. Never talks to a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from multilane.commit.completion_map import Run
from multilane.commit.ledger import CommitPoint
from multilane.errors import MultilaneError, OperationTimeout
from multilane.lanes.uninterrupted import uninterrupted
from multilane.logs import logger
from multilane.types import NO_EPOCH, TopicPartition

log = logger(__name__)


class Start(NamedTuple):
    """Where a partition begins, and what beyond is settled already; with what is known of the log that these are
    offsets of: the newest leader epoch that was read, the epoch of the record before `offset`, the topic's id."""

    offset: int
    runs: tuple[Run, ...] = ()
    end_epoch: int = NO_EPOCH
    leader_epoch: int = NO_EPOCH
    topic_id: UUID | None = None

    @property
    def known_epoch(self) -> int | None:
        """That of the record before `offset`, as `seek` wants it."""
        return None if self.leader_epoch == NO_EPOCH else self.leader_epoch

    def without_runs(self) -> Start:
        return self._replace(runs=(), end_epoch=NO_EPOCH)


Starts = Mapping[TopicPartition, Start]


@dataclass(frozen=True, slots=True)
class ReadTopics:
    """What is read. With `pairs` the partitions of one number, of all topics, are one team, which begins when all are
    there. Topics of `whole` are read from their beginning where nothing is committed, whatever the consumer does by
    itself."""

    names: tuple[str, ...]
    pairs: bool = False
    whole: frozenset[str] = frozenset()


class Held(Protocol):
    """A team, as far as its member has to know it."""

    @property
    def partitions(self) -> frozenset[TopicPartition]: ...

    @property
    def settled(self) -> int: ...

    def place(self, partition: TopicPartition) -> CommitPoint: ...

    async def drain(self, deadline: float) -> object: ...


T = TypeVar("T", bound=Held)
U = TypeVar("U")


class Assignment(Generic[T]):
    def __init__(
        self,
        topics: ReadTopics,
        build: Callable[[Starts], Awaitable[T]],
        on_formed: Callable[[T], object],
        check: Callable[[Starts], Awaitable[Starts]],
    ) -> None:
        self.topics = topics
        self.is_stopping = False
        self._build = build
        self._on_formed = on_formed
        self._check = check
        self._processors: dict[TopicPartition, T] = {}
        self._starts: dict[TopicPartition, Start] = {}  # assigned, and without a team as yet
        self._topic_ids: dict[TopicPartition, UUID | None] = {}  # of the logs that teams read
        self._settled_before = 0  # by teams that are gone

    # --- what is known -----------------------------------------------------------------------------------------------

    @property
    def processors(self) -> tuple[T, ...]:
        return tuple(dict.fromkeys(self._processors.values()))

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """Those with a team."""
        return self._processors.keys()

    def processor(self, partition: TopicPartition) -> T | None:
        return self._processors.get(partition)

    def topic_id(self, partition: TopicPartition) -> UUID | None:
        """As it was when its team was formed."""
        return self._topic_ids.get(partition)

    def start_of(self, processor: T, partition: TopicPartition) -> Start:
        """Where the next team of a partition would begin."""
        return start_of(processor, partition)._replace(topic_id=self.topic_id(partition))

    def waits(self, partition: TopicPartition) -> bool:
        """For its other half."""
        return partition in self._starts

    @property
    def settled(self) -> int:
        """How many records so far, also of partitions that are others' now."""
        return self._settled_before + sum(processor.settled for processor in self.processors)

    # --- teams -------------------------------------------------------------------------------------------------------

    async def begin(self, starts: Starts) -> None:
        """Form the teams that are complete with these."""
        self._starts |= starts
        complete = self._complete()
        ready = {p: self._starts[p] for together in complete for p in together}
        checked = await self.asked(lambda: self._check(ready)) if ready else {}
        for together in complete:
            for partition in together:
                self._starts.pop(partition)
            await self._form({p: checked[p] for p in together})

    async def form(self, starts: Starts) -> None:
        """One team for these; in the place of one that had them."""
        await self._form(await self.asked(lambda: self._check(starts)))

    async def _form(self, starts: Starts) -> None:
        self._topic_ids |= {p: start.topic_id for p, start in starts.items()}
        former = {processor for p in starts if (processor := self._processors.get(p)) is not None}
        processor = await self.asked(lambda: self._build(starts))
        self._settled_before += sum(other.settled for other in former)
        self._processors.update(dict.fromkeys(starts, processor))
        self._on_formed(processor)

    def _complete(self) -> list[list[TopicPartition]]:
        """What can begin: partitions by themselves, or those of one number when all topics have theirs."""
        if not self.topics.pairs:
            return [[p] for p in self._starts]
        numbers = sorted({p.partition for p in self._starts})
        sets = [[TopicPartition(t, n) for t in self.topics.names] for n in numbers]
        return [together for together in sets if all(p in self._starts for p in together)]

    async def drain(self, partitions: Collection[TopicPartition], deadline: float) -> frozenset[TopicPartition]:
        """End the teams of these; gives all partitions that they have."""
        processors = {processor for p in partitions if (processor := self._processors.get(p)) is not None}
        await asyncio.gather(*(processor.drain(deadline) for processor in processors))
        return frozenset(p for processor in processors for p in processor.partitions)

    def let_go(self, drained: Collection[TopicPartition], gone: Collection[TopicPartition]) -> Starts:
        """Forget teams that were drained. Of a pair one may stay: it waits until the other comes back."""
        self._settled_before += sum(processor.settled for processor in {self._processors[p] for p in drained})
        left = {p: self.start_of(self._processors[p], p) for p in drained if p not in gone}
        for partition in drained:
            del self._processors[partition]
        self._starts |= left
        for partition in gone:
            self._starts.pop(partition, None)
            self._topic_ids.pop(partition, None)
        return left

    async def asked(self, ask: Callable[[], Awaitable[U]]) -> U:
        """Brokers that cannot answer now are asked again: what comes of our partitions depends on it."""
        while True:
            try:
                return await uninterrupted(ask)
            except MultilaneError as error:
                if self.is_stopping or not (error.retriable or isinstance(error, OperationTimeout)):
                    raise
                log.warning("partitions that were assigned cannot begin yet, asking again: %s", error)


def start_of(processor: Held, partition: TopicPartition) -> Start:
    place = processor.place(partition)
    return Start(place.offset, place.runs, place.end_epoch, place.leader_epoch)
