"""One run of the error consumer: join the group, work through what is old enough, commit, leave.

Thread: loop, one task.

The run is the membership: members that run at the same time share the partitions, and one that joins later takes its
part without making the others quit. It ends when each of this member's partitions is finished. Owns the consumer while
it runs. Never commits a record before its copy is acknowledged or its handler is done.
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
from multilane.error_consumer.reading import replayed_marks
from multilane.error_consumer.share import ErrorSteps, PartitionShare, RunCounts
from multilane.errors import MultilaneError, WakeupError
from multilane.lanes.uninterrupted import uninterrupted
from multilane.logs import logger
from multilane.outcome.error_policy import ErrorRules, Run
from multilane.outcome.own_thread import on_own_thread
from multilane.outcome.redrive import ReplayMarks
from multilane.types import LeaderEpoch, Offset, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from multilane.client.blocks import Blocks
    from multilane.clock import Clock

log = logger(__name__)

_LOOK_SECONDS: Final = 0.5
_DRAIN_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did, and where partitions stopped: (partition, offset) of records too new, and of those kept why."""

    republished: int
    handled: int
    given_up: int
    passed_over: int
    kept: tuple[tuple[TopicPartition, int, str], ...]
    waiting: tuple[tuple[TopicPartition, int], ...]


class ErrorRun(RebalanceListener):
    def __init__(self, properties: Mapping[str, object], rules: ErrorRules, steps: ErrorSteps, clock: Clock) -> None:
        self._rules = rules
        self._steps = steps
        self._clock = clock
        self._run = Run(rules, clock.monotonic())
        self._tally = RunCounts()
        self._shares: dict[TopicPartition, PartitionShare] = {}
        self._stopping = asyncio.Event()
        self._replayed: dict[TopicPartition, ReplayMarks] = {}
        # No static member: it comes for a run, and other processes of the application beside it.
        self._properties = {k: v for k, v in properties.items() if fold(k) != "group.instance.id"}
        self._consumer = AsyncConsumer(
            {"auto.offset.reset": "earliest", **self._properties, "enable.auto.commit": False}, clock=clock
        )

    def stop(self) -> None:
        """Begin nothing more; `perform` finishes what it began and returns."""
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
        tally = self._tally
        return RunReport(
            *(tally.republished, tally.handled, tally.given_up, tally.passed_over),
            kept=tuple(tally.kept),
            waiting=tuple(tally.waiting),
        )

    async def _read_marks(self) -> dict[TopicPartition, ReplayMarks]:
        """What people replayed; without waiting for brokers that do not answer when we are to stop."""
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

    # --- the partitions come and go ----------------------------------------------------------------------------------

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._run.assign(partitions, self._clock.monotonic())
        for partition in partitions:
            replayed = self._replayed.get(partition) or ReplayMarks(0)
            self._shares[partition] = PartitionShare(partition, self._rules, self._steps, self._tally, replayed)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        leaving = self._take_away(partitions)
        await asyncio.gather(*(share.drain(_DRAIN_SECONDS) for share in leaving))
        await self._commit(leaving)

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.gather(*(share.drop() for share in self._take_away(partitions)))

    def _take_away(self, partitions: Iterable[TopicPartition]) -> list[PartitionShare]:
        leaving = [self._shares.pop(p) for p in partitions if p in self._shares]
        self._run.revoke(partitions, self._clock.monotonic())
        return leaving

    # --- round by round ----------------------------------------------------------------------------------------------

    async def _step(self) -> None:
        try:
            self._take(await self._consumer.poll(_LOOK_SECONDS))
        except WakeupError:
            pass  # a share is done, or we are to stop
        except MultilaneError as error:
            if not self._note_stopped():
                await self._bear(error)
        await self._commit(self._shares.values())
        self._attend()

    async def _bear(self, error: MultilaneError) -> None:
        """Trouble that may pass is waited out."""
        if not error.retriable:
            raise error
        log.warning("reading error topics: %s", error)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._stopping.wait()

    def _take(self, blocks: Blocks) -> None:
        for block in blocks:
            partition = TopicPartition(block.topic, block.partition)
            share = self._shares.get(partition)
            if share is not None:
                self._consumer.pause([partition])  # until these are done
                share.take(block.records(), self._now_ms, self._consumer.wakeup, block.leader_epoch)

    def _now_ms(self) -> int:
        return int(self._clock.wall() * 1_000)

    def _attend(self) -> None:
        """Notice who is finished, and let those who are done with what they had go on."""
        now = self._clock.monotonic()
        for partition, share in self._shares.items():
            if share.is_busy:
                self._run.note_record(partition, now)
            elif share.finished is not None:
                self._run.finish(partition, share.finished)
        self._run.finish_idle(now)
        over = [p for p in self._shares if self._run.is_finished(p)]
        if over:
            self._consumer.pause(over)
        ready = [p for p in self._consumer.paused if p not in over and not self._is_busy(p)]
        if ready:
            for partition in ready:
                self._run.note_record(partition, now)
            self._consumer.resume(ready)

    def _is_busy(self, partition: TopicPartition) -> bool:
        share = self._shares.get(partition)
        return share is not None and share.is_busy

    def _note_stopped(self) -> bool:
        """Partitions that cannot be read are kept where they are; the others go on."""
        stopped = {
            p: e for p, e in self._consumer.stopped.items() if p in self._shares and not self._run.is_finished(p)
        }
        for partition, error in stopped.items():
            log.error("%s cannot be read on: %s", partition, error)
            self._tally.kept.append((partition, self._shares[partition].frontier or 0, str(error)))
            self._run.finish(partition, str(error))
        if stopped:
            self._consumer.pause(stopped)
        return bool(stopped)

    def _is_over(self) -> bool:
        return self._run.is_over(self._clock.monotonic()) and not any(s.is_busy for s in self._shares.values())

    async def _commit(self, shares: Iterable[PartitionShare]) -> None:
        """What is refused is told, and tried again at the next round if the partition is still ours."""
        moved = {s: f for s in shares if (f := s.frontier) is not None and f != s.committed}
        if not moved:
            return
        try:
            places = {share.partition: _place(share, offset) for share, offset in moved.items()}
            await uninterrupted(lambda: self._consumer.commit(places))
        except MultilaneError as error:
            log.warning("offsets of %d error partitions were not committed: %s", len(moved), error)
            return
        for share, offset in moved.items():
            share.committed = offset

    async def _end(self) -> None:
        shares = list(self._shares.values())
        await asyncio.gather(*(share.drain(_DRAIN_SECONDS) for share in shares))
        await self._commit(shares)


def _place(share: PartitionShare, offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(Offset(offset), LeaderEpoch(share.leader_epoch))
