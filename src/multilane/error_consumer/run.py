"""One run of the error consumer: joins the group, processes records that are old enough, commits, leaves.

Thread: loop, one task.

A run is a membership: concurrent runs share the partitions, and one that joins later gets its share without ending the
others. It ends when every partition of this member is finished. A member whose session may have expired begins nothing
until a heartbeat is answered (see `lanes.fence`). Owns the consumer while it runs. Never commits a record before its
copy is acknowledged or its handler is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from multilane.client.async_consumer import AsyncConsumer
from multilane.client.rebalance import RebalanceListener
from multilane.config.spelling import fold
from multilane.error_consumer.error_partition import ErrorPartition, ErrorSteps, RunCounts
from multilane.error_consumer.reading import replayed_marks
from multilane.errors import MultilaneError, WakeupError
from multilane.lanes.fence import Fence
from multilane.lanes.uninterrupted import uninterrupted
from multilane.logs import logger
from multilane.outcome.error_policy import ErrorRules, RedriveRun
from multilane.outcome.own_thread import on_own_thread
from multilane.outcome.redrive import ReplayMarks
from multilane.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from multilane.client.blocks import Blocks
    from multilane.clock import Clock

log = logger(__name__)

_POLL_SECONDS: Final = 0.5
_RESETS: Final = {"auto.offset.reset": "earliest", "lost.position.reset": "earliest"}  # no error record is skipped
_DRAIN_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did, and where partitions stopped: at records too new (`waiting`), or `kept` for a reason."""

    republished: int
    handled: int
    exhausted: int
    skipped: int
    kept: tuple[tuple[TopicPartition, int, str], ...]
    waiting: tuple[tuple[TopicPartition, int], ...]


class ErrorRun(RebalanceListener):
    def __init__(self, properties: Mapping[str, object], rules: ErrorRules, steps: ErrorSteps, clock: Clock) -> None:
        self._rules = rules
        self._steps = steps
        self._clock = clock
        self._run = RedriveRun(rules, clock.monotonic())
        self._counts = RunCounts()
        self._shares: dict[TopicPartition, ErrorPartition] = {}
        self._topic_ids: dict[TopicPartition, UUID | None] = {}  # of the logs when their partitions were assigned
        self._stopping = asyncio.Event()
        self._replayed: dict[TopicPartition, ReplayMarks] = {}
        # Not a static member: it joins for one run, and so do other processes of the application.
        self._properties = {k: v for k, v in properties.items() if fold(k) != "group.instance.id"}
        self._consumer = AsyncConsumer(
            {**_RESETS, **self._properties, "enable.auto.commit": False},
            clock=clock,
            observer=steps.observer,
        )
        self._fence = Fence(str(properties.get("group.id")), clock)
        self._fence.watch(self._consumer)

    def stop(self) -> None:
        """Begin no more records; `perform` finishes those in flight and returns."""
        self._stopping.set()
        self._consumer.wakeup()

    async def perform(self) -> RunReport:
        async with self._consumer:
            self._replayed = await self._read_marks()
            self._consumer.subscribe(sorted(self._rules.topics), self)
            try:
                while not self._stopping.is_set() and not self._is_over():
                    await self._step()
            finally:
                await self._end()
        counts = self._counts
        return RunReport(
            *(counts.republished, counts.handled, counts.exhausted, counts.skipped),
            kept=tuple(counts.kept),
            waiting=tuple(counts.waiting),
        )

    async def _read_marks(self) -> dict[TopicPartition, ReplayMarks]:
        """The marks of manual replays. A stop does not wait for brokers that do not answer."""
        reading = asyncio.create_task(on_own_thread(replayed_marks, self._properties, sorted(self._rules.topics)))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if reading.done():
            return reading.result()
        reading.cancel()
        return {}

    # --- rebalances --------------------------------------------------------------------------------------------------

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._run.assign(partitions, self._clock.monotonic())
        for partition in partitions:
            self._topic_ids[partition] = self._consumer.known_topic_id(partition.topic)
            replayed = self._replayed.get(partition) or ReplayMarks(0)
            self._shares[partition] = ErrorPartition(
                partition, self._rules, self._steps, self._counts, replayed, self._fence
            )

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        removed = self._remove(partitions)
        await asyncio.gather(*(share.drain(_DRAIN_SECONDS) for share in removed))
        await self._commit(removed)

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.gather(*(share.drop() for share in self._remove(partitions)))

    def _remove(self, partitions: Iterable[TopicPartition]) -> list[ErrorPartition]:
        removed = [self._shares.pop(p) for p in partitions if p in self._shares]
        self._run.revoke(partitions, self._clock.monotonic())
        return removed

    # --- polling -----------------------------------------------------------------------------------------------------

    async def _step(self) -> None:
        try:
            self._take(await self._consumer.poll(_POLL_SECONDS))
        except WakeupError:
            pass  # a share is done, or `stop` was called
        except MultilaneError as error:
            if not self._note_stopped():
                await self._back_off(error)
        await self._commit(self._shares.values())
        self._update()

    async def _back_off(self, error: MultilaneError) -> None:
        """Wait after a retriable error; raise any other."""
        if not error.retriable:
            raise error
        log.warning("reading error topics failed, retrying: %s", error)
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await self._stopping.wait()

    def _take(self, blocks: Blocks) -> None:
        for block in blocks:
            partition = TopicPartition(block.topic, block.partition)
            share = self._shares.get(partition)
            if share is not None:
                self._consumer.pause([partition])  # until these records are done
                share.take(block.records(), self._now_ms, self._consumer.wakeup, block.leader_epoch)

    def _now_ms(self) -> int:
        return int(self._clock.wall() * 1_000)

    def _update(self) -> None:
        """Note finished partitions, and resume those whose records are done."""
        now = self._clock.monotonic()
        for partition, share in self._shares.items():
            if share.is_busy:
                self._run.note_record(partition, now)
            elif share.finished is not None:
                self._run.finish(partition, share.finished)
        self._run.finish_idle(now)
        finished = [p for p in self._shares if self._run.is_finished(p)]
        if finished:
            self._consumer.pause(finished)
        ready = [p for p in self._consumer.paused if p not in finished and not self._is_busy(p)]
        if ready:
            for partition in ready:
                self._run.note_record(partition, now)
            self._consumer.resume(ready)

    def _is_busy(self, partition: TopicPartition) -> bool:
        share = self._shares.get(partition)
        return share is not None and share.is_busy

    def _note_stopped(self) -> bool:
        """Finish partitions that cannot be read, at their position. The others go on."""
        stopped = {
            p: e for p, e in self._consumer.stopped.items() if p in self._shares and not self._run.is_finished(p)
        }
        for partition, error in stopped.items():
            log.error("cannot continue reading %s: %s", partition, error)
            self._counts.kept.append((partition, self._shares[partition].frontier or 0, str(error)))
            self._run.finish(partition, str(error))
        if stopped:
            self._consumer.pause(stopped)
        return bool(stopped)

    def _is_over(self) -> bool:
        return self._run.is_over(self._clock.monotonic()) and not any(s.is_busy for s in self._shares.values())

    async def _commit(self, shares: Iterable[ErrorPartition]) -> None:
        """A failed commit is logged, and retried after the next poll while the partition is assigned."""
        moved = {s: f for s in shares if (f := s.frontier) is not None and f != s.committed}
        if not moved:
            return
        try:
            offsets = {share.partition: self._commit_point(share, offset) for share, offset in moved.items()}
            await uninterrupted(lambda: self._consumer.commit(offsets))
        except MultilaneError as error:
            log.warning("cannot commit the offsets of %d error partitions: %s", len(moved), error)
            return
        for share, offset in moved.items():
            share.committed = offset

    def _commit_point(self, share: ErrorPartition, offset: int) -> OffsetAndMetadata:
        """With the topic id: what was done is not committed for a topic that was created again meanwhile."""
        return OffsetAndMetadata(offset, share.leader_epoch, topic_id=self._topic_ids.get(share.partition))

    async def _end(self) -> None:
        shares = list(self._shares.values())
        await asyncio.gather(*(share.drain(_DRAIN_SECONDS) for share in shares))
        await self._commit(shares)
