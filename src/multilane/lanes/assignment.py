"""The partitions that a group member holds, each with a processor, whose lanes may be in this process or elsewhere.

Thread: loop (one owner).

A partition comes with its start offset and the runs that are settled beyond it; `check` compares these with the log
each time before a processor skips them. Partitions of one number share a processor if their topics are paired; it
is built once all of them are assigned. Owns the processors. Never talks to a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from multilane.commit.ledger import CommitPoint
from multilane.commit.runs import Run
from multilane.commit.trigger_positions import Position
from multilane.errors import MultilaneError, OperationTimeout
from multilane.lanes.uninterrupted import uninterrupted
from multilane.logs import logger
from multilane.types import NO_EPOCH, TopicPartition

log = logger(__name__)


class Start(NamedTuple):
    """Where processing of a partition begins, and the runs beyond it that are settled already. Identifies their log by
    the newest leader epoch that was read, the epoch of the record before `offset`, and the topic's id. `positions` are
    those of the triggers that share the commit."""

    offset: int
    runs: tuple[Run, ...] = ()
    end_epoch: int = NO_EPOCH
    leader_epoch: int = NO_EPOCH
    topic_id: UUID | None = None
    positions: Mapping[str, Position] = MappingProxyType({})

    @property
    def claimed_end(self) -> int:
        """The offset after the last record that is settled."""
        runs_end = self.runs[-1][1] + 1 if self.runs else self.offset
        return max([runs_end, *(position.end for position in self.positions.values())])

    @property
    def has_claims(self) -> bool:
        """Whether records count as settled although they are not below the position of whoever begins here."""
        return self.claimed_end > self.offset or any(position.runs for position in self.positions.values())

    @property
    def known_epoch(self) -> int | None:
        """The epoch of the record before `offset`, in the form that `seek` takes."""
        return None if self.leader_epoch == NO_EPOCH else self.leader_epoch

    def without_claims(self) -> Start:
        """Nothing at or beyond `offset` counts as settled, and no runs of positions below it."""
        positions = {name: position.below(self.offset).without_runs() for name, position in self.positions.items()}
        return self._replace(runs=(), end_epoch=NO_EPOCH, positions=positions)

    def of_new_log(self) -> Start:
        """The beginning of a topic that was recreated. Triggers that are absent begin there, too."""
        return Start(0, positions={name: position.below(0) for name, position in self.positions.items()})


Starts = Mapping[TopicPartition, Start]


@dataclass(frozen=True, slots=True)
class ReadTopics:
    """The topics that are read. Partitions of one number, of topics that are `paired`, share a processor, which
    begins once all are assigned. Topics in `from_beginning` are read from their beginning if nothing is committed,
    whatever the consumer's reset policy is."""

    names: tuple[str, ...]
    paired: tuple[tuple[str, ...], ...] = ()
    from_beginning: frozenset[str] = frozenset()


class AssignedProcessor(Protocol):
    """The part of a processor that a group member uses."""

    @property
    def partitions(self) -> frozenset[TopicPartition]: ...

    @property
    def settled(self) -> int: ...

    def commit_point(self, partition: TopicPartition) -> CommitPoint: ...

    async def drain(self, deadline: float) -> object: ...


T = TypeVar("T", bound=AssignedProcessor)
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
        self._starts: dict[TopicPartition, Start] = {}  # assigned, and not yet with a processor
        self._topic_ids: dict[TopicPartition, UUID | None] = {}  # of the logs that processors read
        self._settled_before = 0  # by former processors

    # --- queries -----------------------------------------------------------------------------------------------------

    @property
    def processors(self) -> tuple[T, ...]:
        return tuple(dict.fromkeys(self._processors.values()))

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions that have a processor."""
        return self._processors.keys()

    def processor(self, partition: TopicPartition) -> T | None:
        return self._processors.get(partition)

    def topic_id(self, partition: TopicPartition) -> UUID | None:
        """The id when the partition's processor was built."""
        return self._topic_ids.get(partition)

    def start_of(self, processor: T, partition: TopicPartition) -> Start:
        """Where the next processor of a partition would begin."""
        return start_of(processor, partition)._replace(topic_id=self.topic_id(partition))

    def waits(self, partition: TopicPartition) -> bool:
        """Whether the partition waits for the other one of its pair."""
        return partition in self._starts

    @property
    def settled(self) -> int:
        """How many records were settled so far, including those of partitions that were revoked."""
        return self._settled_before + sum(processor.settled for processor in self.processors)

    # --- processors --------------------------------------------------------------------------------------------------

    async def begin(self, starts: Starts) -> None:
        """Build the processors whose partitions are complete now."""
        self._starts |= starts
        complete = self._complete()
        ready = {p: self._starts[p] for together in complete for p in together}
        checked = await self.retrying(lambda: self._check(ready)) if ready else {}
        for together in complete:
            for partition in together:
                self._starts.pop(partition)
            await self._form({p: checked[p] for p in together})

    async def form(self, starts: Starts) -> None:
        """Build one processor for these partitions; it replaces their former processor."""
        await self._form(await self.retrying(lambda: self._check(starts)))

    async def _form(self, starts: Starts) -> None:
        self._topic_ids |= {p: start.topic_id for p, start in starts.items()}
        former = {processor for p in starts if (processor := self._processors.get(p)) is not None}
        processor = await self.retrying(lambda: self._build(starts))
        self._settled_before += sum(other.settled for other in former)
        self._processors.update(dict.fromkeys(starts, processor))
        self._on_formed(processor)

    def _complete(self) -> list[list[TopicPartition]]:
        """The sets that can begin: single partitions, and those of one number whose topics are paired."""
        shared = {topic for topics in self.topics.paired for topic in topics}
        alone = [[p] for p in self._starts if p.topic not in shared]
        numbers = sorted({p.partition for p in self._starts if p.topic in shared})
        sets = [[TopicPartition(t, n) for t in topics] for n in numbers for topics in self.topics.paired]
        return alone + [together for together in sets if all(p in self._starts for p in together)]

    async def drain(self, partitions: Collection[TopicPartition], deadline: float) -> frozenset[TopicPartition]:
        """Drain the processors of these partitions. Returns all partitions that they have."""
        processors = {processor for p in partitions if (processor := self._processors.get(p)) is not None}
        await asyncio.gather(*(processor.drain(deadline) for processor in processors))
        return frozenset(p for processor in processors for p in processor.partitions)

    def remove(self, drained: Collection[TopicPartition], gone: Collection[TopicPartition]) -> Starts:
        """Remove processors that were drained. If one of a pair stays, it waits until the other is assigned again."""
        self._settled_before += sum(processor.settled for processor in {self._processors[p] for p in drained})
        kept = {p: self.start_of(self._processors[p], p) for p in drained if p not in gone}
        for partition in drained:
            del self._processors[partition]
        self._starts |= kept
        for partition in gone:
            self._starts.pop(partition, None)
            self._topic_ids.pop(partition, None)
        return kept

    async def retrying(self, call: Callable[[], Awaitable[U]]) -> U:
        """Repeats a call to brokers that cannot answer now: the assigned partitions depend on it."""
        while True:
            try:
                return await uninterrupted(call)
            except MultilaneError as error:
                if self.is_stopping or not (error.retriable or isinstance(error, OperationTimeout)):
                    raise
                log.warning("cannot start assigned partitions yet, retrying: %s", error)


def start_of(processor: AssignedProcessor, partition: TopicPartition) -> Start:
    point = processor.commit_point(partition)
    return Start(point.offset, point.runs, point.end_epoch, point.leader_epoch, positions=point.positions)
