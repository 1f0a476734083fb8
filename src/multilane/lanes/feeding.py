"""Feeds processors with the blocks that a consumer polls. Pauses only partitions whose lanes have enough.

Thread: loop; one task, the only user of the consumer.

Never commits, and does not know who assigned the partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Generic, Protocol, TypeVar

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.errors import ClientFailed, MultilaneError, WakeupError
from multilane.lanes.assignment import AssignedProcessor, Assignment, Start
from multilane.logs import logger
from multilane.types import TopicPartition
from multilane.wire.records.block import Block

log = logger(__name__)


class Fed(AssignedProcessor, Protocol):
    """The part of a processor that feeding uses."""

    def listen(self, on_wants_blocks: Callable[[], object], on_failure: Callable[[BaseException], object]) -> None: ...

    def accept(self, block: Block) -> None: ...

    def feed(self) -> None: ...

    def end(self, partition: TopicPartition) -> int: ...

    def wants_blocks(self, partition: TopicPartition) -> bool: ...

    def copy_out(self, partition: TopicPartition) -> None: ...

    def is_idle(self, partition: TopicPartition) -> bool: ...

    def pass_to(self, partition: TopicPartition, position: int, leader_epoch: int) -> None: ...


F = TypeVar("F", bound=Fed)


class Feeding(Generic[F]):
    def __init__(self, consumer: AsyncConsumer, assignment: Assignment[F], drain: float, clock: Clock) -> None:
        """`drain`: seconds for records in flight when a log continues below the position."""
        self._consumer = consumer
        self._assignment = assignment
        self._drain = drain
        self._clock = clock
        self._full: set[TopicPartition] = set()  # paused because their lanes have enough
        self._to_resume: set[TopicPartition] = set()
        self.ends: Mapping[TopicPartition, int] = {}  # records from this offset on are not handled
        self._at_end: set[TopicPartition] = set()
        self._is_delivering = False  # blocks were polled that their processors do not have yet
        self._sought: set[TopicPartition] = set()  # read again: the other blocks of the same poll lie behind a gap
        self._cuts: deque[tuple[TopicPartition, int]] = deque()
        self.failure: BaseException | None = None

    def add(self, processor: F) -> None:
        """Feed a new processor."""
        processor.listen(partial(self._note_wants_blocks, processor), self.fail)
        self._consumer.resume(processor.partitions & self._consumer.paused)

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self._consumer.wakeup()

    def cut(self, partition: TopicPartition, offset: int) -> None:
        """Another reader has found that the log continues at this offset, below what its processor has."""
        self._cuts.append((partition, offset))
        self._consumer.wakeup()

    @property
    def is_complete(self) -> bool:
        """Whether there are ends, every partition was read up to its end, and all of its records are settled."""
        if not self.ends or len(self._at_end) < len(self.ends):
            return False
        processors = ((partition, self._assignment.processor(partition)) for partition in self._at_end)
        return all(processor is None or processor.is_idle(partition) for partition, processor in processors)

    async def step(self, patience: float) -> None:
        """Poll once, for at most `patience` seconds, and deliver the blocks."""
        await self._restart_cut()
        self._resume_wanted()
        try:
            blocks = await self._consumer.poll(patience)
        except WakeupError:
            return
        self._is_delivering = True
        await self._deliver_all(blocks)
        self._is_delivering = False

    async def catch_up(self, partition: TopicPartition) -> None:
        """Moves past markers and gaps at the end of the log."""
        with suppress(MultilaneError):
            position = await self._consumer.position(partition, 0)
            processor = self._assignment.processor(partition)
            if processor is None or self._is_delivering:
                return
            is_beyond = position > processor.end(partition) or partition in self.ends
            if is_beyond and processor.is_idle(partition):  # the cheap question first: it is asked once a second
                processor.pass_to(partition, position, self._consumer.leader_epoch(partition))
                self._note_end(partition, position)

    async def _deliver_all(self, blocks: Iterable[Block]) -> None:
        """Every processor gets its blocks before any of them takes records in."""
        self._sought.clear()
        delivered = [partition for block in blocks if (partition := await self._deliver(block)) is not None]
        for partition in dict.fromkeys(delivered):
            processor = self._assignment.processor(partition)
            if processor is None:
                continue  # revoked since
            processor.feed()
            if partition in self._at_end or not processor.wants_blocks(partition):
                self._full.add(partition)
                self._consumer.pause([partition])
                processor.copy_out(partition)

    async def _deliver(self, block: Block) -> TopicPartition | None:
        partition = TopicPartition(block.topic, block.partition)
        if partition in self._sought:
            return None
        processor = self._assignment.processor(partition)
        if processor is not None and block.first_offset < processor.end(partition):
            processor = await self._restart(partition, processor, block.first_offset)
        elif processor is None and partition in self._consumer.assignment and not self._assignment.waits(partition):
            raise ClientFailed(
                f"{partition} is read but has no processor: this is a bug in multilane; its records are not committed"
            )
        if processor is None:
            return None  # revoked in the same poll, or one of a pair that waits for the other, or not wanted
        self._note_end(partition, block.next_offset)
        wanted = self._before_end(partition, block)
        if wanted is not None:
            processor.accept(wanted)
        return partition

    def _note_end(self, partition: TopicPartition, position: int) -> None:
        """Stop reading at the end. The record before it may be absent, so the position decides."""
        end = self.ends.get(partition)
        if end is not None and position >= end:
            self._at_end.add(partition)
            self._consumer.pause([partition])

    def _before_end(self, partition: TopicPartition, block: Block) -> Block | None:
        end = self.ends.get(partition)
        if end is None or block.next_offset <= end:
            return block
        return block.slice(0, int(block.offsets.searchsorted(end))) if block.first_offset < end else None

    async def _restart_cut(self) -> None:
        while self._cuts:
            partition, offset = self._cuts.popleft()
            processor = self._assignment.processor(partition)
            if processor is not None and await self._restart(partition, processor, offset) is not None:
                self._seek_to_start(partition, Start(offset))

    async def _restart(self, partition: TopicPartition, processor: F, offset: int) -> F | None:
        """The log continues at this offset, below the position: it was truncated or recreated, or the offsets were
        reset. If records below it are unsettled, reading restarts from them, and None is returned."""
        log.warning("%s continues at offset %d, below its position: restarting its lanes", partition, offset)
        self._at_end.discard(partition)
        await processor.drain(self._clock.monotonic() + self._drain)
        starts = {p: self._assignment.start_of(processor, p) for p in processor.partitions}
        starts[partition] = _below(starts[partition], offset)
        await self._assignment.form(starts)
        for other, start in starts.items():
            if other != partition or start.offset < offset:
                self._seek_to_start(other, start)
                self._sought.add(other)
        return self._assignment.processor(partition) if starts[partition].offset == offset else None

    def _seek_to_start(self, partition: TopicPartition, start: Start) -> None:
        """Where its new processor begins: beyond the start, if nobody needs what lies between."""
        processor = self._assignment.processor(partition)
        begin = start.offset if processor is None else max(start.offset, processor.end(partition))
        self._consumer.seek(partition, begin, start.known_epoch if begin == start.offset else None)

    def _note_wants_blocks(self, processor: F) -> None:
        """A pool has taken in some of the waiting records."""
        if not self._full:  # each lane tells whenever it has run out
            return
        paused = self._consumer.paused
        waiting = (
            p for p in processor.partitions if p in paused and p not in self._to_resume and p not in self._at_end
        )
        wanting = [p for p in waiting if processor.wants_blocks(p)]
        if wanting:
            self._to_resume.update(wanting)
            self._consumer.wakeup()

    def _resume_wanted(self) -> None:
        to_resume, self._to_resume = self._to_resume, set()
        self._full -= to_resume
        wanted = to_resume & self._consumer.paused & set(self._assignment.partitions)
        if wanted:
            self._consumer.resume(wanted)


def _below(start: Start, offset: int) -> Start:
    """The part of `start` below this offset, where the log, which may be another one, continues."""
    if start.offset > offset:
        return Start(offset, positions={name: position.below(offset) for name, position in start.positions.items()})
    kept = tuple((first, min(last, offset - 1)) for first, last in start.runs if first < offset)
    positions = {name: position.below(offset) for name, position in start.positions.items()}
    claims = kept or any(position.offset > start.offset for position in positions.values())
    return start._replace(runs=kept, topic_id=start.topic_id if claims else None, positions=positions)
