"""The pump of the process engine: polls the group's partitions, feeds their teams, pauses, commits, and drains.

Thread: loop; one task, the only user of its consumer.

A partition whose lanes have enough is paused, and nothing else is. Every commit interval the places of all teams are
committed; when partitions are revoked their teams end what they are at, within a deadline, and what is settled is
committed before the group hears that they are given up. What is lost is dropped without a commit.

Owns the consumer and the teams. Never runs a user's function.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from multilane.client.async_consumer import AsyncConsumer
from multilane.client.rebalance import RebalanceListener
from multilane.clock import Clock
from multilane.commit import completion_map
from multilane.commit.completion_map import Run
from multilane.errors import ClientFailed, MultilaneError, OperationTimeout, WakeupError
from multilane.lanes.team import Team
from multilane.types import LeaderEpoch, Offset, OffsetAndMetadata, TopicPartition
from multilane.wire.records.block import Block

log = logging.getLogger(__name__)

Start = tuple[int, tuple[Run, ...]]  # where a partition begins, and what beyond is settled already
BuildTeam = Callable[[Mapping[TopicPartition, Start]], Awaitable[Team]]
T = TypeVar("T")
_POLL: Final = 0.5
_FIRST_POSITIONS: Final = 10.0  # seconds, for all partitions without a commit together
_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Timing:
    commit_interval: float = 1.0
    drain: float = 10.0  # for what is in work when partitions are revoked or the app stops


@dataclass(frozen=True, slots=True)
class Topics:
    """What is read. With `pairs` the partitions of one number, of all topics, are one team, which begins when all are
    there. Topics of `whole` are read from their beginning where nothing is committed, whatever the consumer does by
    itself."""

    names: tuple[str, ...]
    pairs: bool = False
    whole: frozenset[str] = frozenset()


class Pump(RebalanceListener):
    def __init__(
        self,
        consumer: AsyncConsumer,
        topics: Topics,
        build: BuildTeam,
        timing: Timing,
        clock: Clock,
    ) -> None:
        self._consumer = consumer
        self._topics = topics.names
        self._build = build
        self._timing = timing
        self._clock = clock
        self._pairs = topics.pairs
        self._whole = topics.whole
        self._teams: dict[TopicPartition, Team] = {}
        self._starts: dict[TopicPartition, Start] = {}  # assigned, and without a team as yet
        self._hungry: set[TopicPartition] = set()
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._commit_at = clock.monotonic() + timing.commit_interval
        self._settled_before = 0  # by teams that are gone
        self._is_giving = False  # blocks were polled that their teams do not have yet
        self._stopping = False
        self._failure: BaseException | None = None

    # --- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until `stop` is called or something fails; ends with everything settled committed and the group left."""
        self._consumer.subscribe(self._topics, self)
        try:
            while not self._stopping and self._failure is None:
                await self._step()
        finally:
            await self._end()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """From any task of the loop."""
        self._stopping = True
        self._consumer.wakeup()

    async def _step(self) -> None:
        self._resume_hungry()
        with suppress(WakeupError):
            blocks = await self._consumer.poll(self._patience())
            self._is_giving = True
            await self._give_all(blocks)
            self._is_giving = False
        if self._clock.monotonic() >= self._commit_at:
            await self._commit_settled()

    def _patience(self) -> float:
        return min(_POLL, max(0.0, self._commit_at - self._clock.monotonic()))

    @property
    def teams(self) -> tuple[Team, ...]:
        return tuple(dict.fromkeys(self._teams.values()))

    @property
    def settled(self) -> int:
        """How many records so far, also of partitions that are others' now."""
        return self._settled_before + sum(team.settled for team in self.teams)

    # --- feeding -----------------------------------------------------------------------------------------------------

    async def _give_all(self, blocks: Iterable[Block]) -> None:
        """Every team has its blocks before any of them goes on."""
        given = [partition for block in blocks if (partition := await self._give(block)) is not None]
        for partition in given:
            team = self._teams[partition]
            team.feed()
            if not team.wants_blocks(partition):
                self._consumer.pause([partition])
                team.yard.copy_out(partition)

    async def _give(self, block: Block) -> TopicPartition | None:
        partition = TopicPartition(block.topic, block.partition)
        team = self._teams.get(partition)
        if team is None:
            if partition in self._consumer.assignment and partition not in self._starts:
                raise ClientFailed(f"{partition} is read and nobody has it: a defect; its records are not committed")
            return None  # revoked in the same poll, or one of a pair that waits for the other
        if block.first_offset < team.yard.intakes[partition].end and not await self._begin_again(partition, block):
            return None
        self._teams[partition].accept(block)
        return partition

    async def _begin_again(self, partition: TopicPartition, block: Block) -> bool:
        """The log goes on below where we were: it was cut, made anew, or the offsets were reset. What is unsettled
        below that is still to be done: then it is read again from there, and this block is not wanted."""
        team = self._teams[partition]
        log.warning("%s goes on at %d, below what was read: its lanes begin again", partition, block.first_offset)
        await team.drain(self._clock.monotonic() + self._timing.drain)
        starts = {p: self._start_of(team, p) for p in team.partitions}
        offset, runs = starts[partition]
        kept = tuple((first, min(last, block.first_offset - 1)) for first, last in runs if first < block.first_offset)
        starts[partition] = (min(offset, block.first_offset), kept)
        await self._begin(starts)
        self._settled_before += team.settled
        for other, (begin, _) in starts.items():
            if other != partition or begin < block.first_offset:
                self._consumer.seek(other, begin)
        return starts[partition][0] == block.first_offset

    def _start_of(self, team: Team, partition: TopicPartition) -> Start:
        place = team.place(partition)
        return place.offset, place.runs

    def _note_hungry(self, team: Team) -> None:
        """A crew has taken in some of what waited."""
        paused = self._consumer.paused
        hungry = [p for p in team.partitions if p in paused and p not in self._hungry and team.wants_blocks(p)]
        if hungry:
            self._hungry.update(hungry)
            self._consumer.wakeup()

    def _resume_hungry(self) -> None:
        hungry, self._hungry = self._hungry, set()
        wanted = hungry & self._consumer.paused & self._teams.keys()
        if wanted:
            self._consumer.resume(wanted)

    # --- commits -----------------------------------------------------------------------------------------------------

    async def _commit_settled(self) -> None:
        self._commit_at = self._clock.monotonic() + self._timing.commit_interval
        news = await self._news(self._teams)
        if news:
            self._consumer.commit_async(news, self._on_committed)

    async def _news(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What has moved since it was last committed."""
        places = {p: await self._place(p) for p in partitions}
        return {p: place for p, place in places.items() if place.offset >= 0 and self._committed.get(p) != place}

    async def _place(self, partition: TopicPartition) -> OffsetAndMetadata:
        team = self._teams[partition]
        if team.is_idle(partition) and not self._is_giving:
            with suppress(MultilaneError):  # markers and gaps at the end of the log are passed too
                position = await self._consumer.position(partition, 0)
                team.yard.intakes[partition].pass_to(position)
        place = team.place(partition)
        metadata = completion_map.encode(place.offset, place.runs)
        return OffsetAndMetadata(Offset(place.offset), LeaderEpoch(place.leader_epoch), metadata)

    def _on_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: BaseException | None) -> None:
        if error is None:
            self._committed.update(offsets)
        else:
            log.warning("a commit of %d partitions failed and is made again: %s", len(offsets), error)

    async def _commit_now(self, partitions: Collection[TopicPartition]) -> None:
        news = await self._news(p for p in partitions if p in self._teams)
        if not news:
            return
        try:
            await self._consumer.commit(news)
        except MultilaneError as error:
            log.warning("what was settled of %d partitions could not be committed: %s", len(news), error)

    # --- partitions come and go --------------------------------------------------------------------------------------

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        committed = await self._until_told(lambda: self._consumer.committed(partitions)) if partitions else {}
        deadline = self._clock.monotonic() + _FIRST_POSITIONS
        for partition in partitions:
            place = committed.get(partition)
            if place is not None:
                self._committed[partition] = place
                self._starts[partition] = (place.offset, completion_map.decode(place.metadata, place.offset))
            else:
                self._starts[partition] = (await self._first_position(partition, deadline), ())
        for together in self._complete():
            await self._begin({p: self._starts.pop(p) for p in together})
        alone = [p for p in partitions if p in self._starts]
        if alone:
            self._consumer.pause(alone)
            await self._tell_of_unmatched(alone)

    async def _tell_of_unmatched(self, alone: Collection[TopicPartition]) -> None:
        """The other half of a pair mostly comes a moment later; one that does not exist never does."""
        with suppress(MultilaneError):  # whoever waits is told by the lag too
            counts = {topic: len(await self._consumer.partitions_for(topic)) for topic in self._topics}
            for topic, many in counts.items():
                unmatched = sorted(p for p in alone if p.partition >= many)
                if unmatched:
                    told = "%s are not read: %s has %d partitions. retryOrder key needs equally many; add partitions"
                    log.error(told, ", ".join(map(str, unmatched)), topic, many)

    async def _first_position(self, partition: TopicPartition, deadline: float) -> int:
        """Nothing is committed: where the reading begins, which is committed then, so that it begins there again."""
        if partition.topic in self._whole:
            self._consumer.seek_to_beginning([partition])
        while (left := deadline - self._clock.monotonic()) > 0:
            try:
                return await self._consumer.position(partition, left)
            except WakeupError:
                continue  # meant for a poll; the hungry are looked after before the next
            except OperationTimeout:
                break
        return _UNKNOWN  # its first block tells

    async def _until_told(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Brokers that cannot answer now are asked again: what comes of our partitions depends on it."""
        while True:
            try:
                return await ask()
            except MultilaneError as error:
                if self._stopping or not (error.retriable or isinstance(error, OperationTimeout)):
                    raise
                log.warning("partitions that were assigned cannot begin yet, asking again: %s", error)

    def _complete(self) -> list[list[TopicPartition]]:
        """What can begin: partitions by themselves, or those of one number when all topics have theirs."""
        if not self._pairs:
            return [[p] for p in self._starts]
        numbers = sorted({p.partition for p in self._starts})
        sets = [[TopicPartition(t, n) for t in self._topics] for n in numbers]
        return [together for together in sets if all(p in self._starts for p in together)]

    async def _begin(self, starts: Mapping[TopicPartition, Start]) -> Team:
        team = await self._until_told(lambda: self._build(starts))
        team.listen(self._note_hungry, self._fail)
        self._teams.update(dict.fromkeys(starts, team))
        self._consumer.resume(set(starts) & self._consumer.paused)
        return team

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._consumer.wakeup()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._give_back(partitions, commits=True)

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        await self._give_back(partitions, commits=False)

    async def _give_back(self, partitions: Collection[TopicPartition], *, commits: bool) -> None:
        teams = {team for p in partitions if (team := self._teams.get(p)) is not None}
        whole = {p for team in teams for p in team.partitions}
        patience = self._timing.drain if commits else 0.0
        await asyncio.gather(*(team.drain(self._clock.monotonic() + patience) for team in teams))
        if commits:
            await self._commit_now(whole)
        self._settled_before += sum(team.settled for team in teams)
        for partition in whole:
            team = self._teams.pop(partition)
            self._committed.pop(partition, None)
            if partition not in partitions:  # one of a pair stays: it begins again when the other comes back
                self._starts[partition] = self._start_of(team, partition)
                self._consumer.seek(partition, self._starts[partition][0])
                self._consumer.pause([partition])
        for partition in partitions:
            self._starts.pop(partition, None)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """The last revocation, which closing makes, drains and commits."""
        await self._consumer.close(self._timing.drain + 30.0)
        for team in self.teams:  # none, unless the group was lost in the middle
            await team.drain(self._clock.monotonic())
