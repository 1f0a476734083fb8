"""The lanes of several triggers that share one group member, in the form that a group's engine expects of one.

Thread: loop.

A trigger is a consumer of the configuration with its listener. Each keeps its own lane factory, and with it its lanes,
retries, errors, breaker and audit; what they share is the member, its position and its commits. A partition of a shared
topic gets a shared processor, one of a retry topic that is not paired a processor of the trigger that it belongs to.
Owns the readers of detached triggers, from `open` to `close`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.commit.ledger import CommitPoint
from multilane.commit.trigger_positions import Position
from multilane.config.app import sharing
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.model import AppConfig
from multilane.config.sharing_key import SharingKey
from multilane.lanes.assignment import ReadTopics, Start
from multilane.lanes.detached_reader import DetachedReader
from multilane.lanes.joint_commit import JointCommit
from multilane.lanes.partition_events import PartitionHandler
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.shared_processor import DetachLimits, SharedProcessor, Trigger
from multilane.logs import logger
from multilane.metrics.observer import Observer
from multilane.runtime.commit_room import CommitRoom
from multilane.runtime.group_lanes import GroupLanes
from multilane.runtime.lane_factory import LaneFactory
from multilane.runtime.late_starts import late_offset
from multilane.runtime.shared_properties import merged
from multilane.types import NO_EPOCH, TopicPartition

log = logger(__name__)

_DETACHED_BUFFER: Final = 8 * 1024 * 1024  # bytes: there may be as many readers as triggers


BuildsProcessor = Callable[[Mapping[TopicPartition, Start]], Awaitable[PartitionProcessor]]


@dataclass(frozen=True, slots=True)
class SharedSettings:
    name: str
    group_id: str
    commit_interval: float
    rebalance_timeout: float


@dataclass(frozen=True, slots=True)
class SharedSource:
    keeps_order: bool
    topics: ReadTopics
    member_properties: Mapping[str, object]
    reader_properties: Mapping[str, object]


class SharedLanes:
    """Make it inside the running loop."""

    def __init__(self, factories: Sequence[LaneFactory], clock: Clock, key: SharingKey | None = None) -> None:
        self.key = key
        self._factories: dict[str, LaneFactory] = {}
        self._clock = clock
        self._readers: dict[str, DetachedReader] = {}
        self._consumer: AsyncConsumer | None = None
        self._observer: Observer | None = None
        self._events = _EventsOfAll()
        self._opened: set[str] = set()
        self._left: set[str] = set()  # triggers that have left for good
        self._reported: set[str] = set()  # absent and new triggers, and differences, that were logged
        self.on_cut: Callable[[TopicPartition, int], object] = lambda partition, offset: None
        self.on_failure: Callable[[BaseException], object] = lambda error: None
        self._room = CommitRoom()
        self._put(factories)

    def _put(self, factories: Sequence[LaneFactory]) -> None:
        self._room.check(factories[0].config.group_id, [factory.config.name for factory in factories])
        self._factories = {factory.config.name: factory for factory in factories}
        for name, factory in self._factories.items():
            factory.trigger = name
        configs = [factory.config for factory in factories]
        self.config = SharedSettings(
            " + ".join(self._factories),
            configs[0].group_id,
            min(config.commit_interval for config in configs),
            max(config.rebalance_timeout for config in configs),
        )
        self.source, differences = source_of(factories)
        for difference in differences:
            if difference not in self._reported:
                self._reported.add(difference)
                log.warning("%s share a consumer: %s", self.config.name, difference)
        self._absent_after = max(config.absent_after for config in configs)

    # --- triggers that come and go -----------------------------------------------------------------------------------

    def add(self, factory: LaneFactory) -> bool:
        """Another trigger, whose factory is open. Returns whether the member has to join its group again, because it
        reads other topics or needs other settings."""
        before = self.source
        self._put([*self._factories.values(), factory])
        self._opened.add(factory.config.name)
        self._left.discard(factory.config.name)
        if self._consumer is not None and self._observer is not None:
            self._events.add(factory, factory.bind_to(self._consumer, self._observer))
        return before != self.source

    async def attach(self, shared: SharedProcessor, start: Start, name: str) -> None:
        """To a partition that is processed. `start` is where its next processor would begin."""
        factory = self._factories[name]
        self._room.check_absent(self.config.group_id, [*shared.triggers, name], start.positions)
        await self._events.of(factory).assigned(frozenset([shared.partition]))
        [trigger] = await self._triggers({name: factory.build}, shared.partition, {shared.partition: start})
        shared.attach(trigger)

    def joins_again_without(self, name: str) -> bool:
        """Whether the member has to join its group again when this trigger leaves."""
        return source_of([f for other, f in self._factories.items() if other != name])[0] != self.source

    def leave(self, name: str) -> None:
        """The trigger takes part in no processor from now on, and its position is named no longer."""
        self._left.add(name)

    async def remove(self, name: str) -> None:
        """After it has left all processors. It must not be the last one."""
        self.leave(name)
        factory = self._factories[name]
        self._put([other for other in self._factories.values() if other is not factory])
        self._opened.discard(name)
        self._events.remove(factory)
        reader = self._readers.pop(name, None)
        if reader is not None:
            await reader.close()
        await factory.close()

    @property
    def consumers(self) -> Mapping[str, LaneFactory]:
        return self._factories

    def bind_to(self, consumer: AsyncConsumer, observer: Observer) -> PartitionHandler:
        self._consumer, self._observer = consumer, observer
        self._events = _EventsOfAll()
        for factory in self._factories.values():
            self._events.add(factory, factory.bind_to(consumer, observer))
        return self._events

    def check_room(self, most: int) -> None:
        """The coordinator takes so many bytes as metadata of a commit. Raises ConfigError if positions need more."""
        self._room.most = most
        self._room.check(self.config.group_id, list(self._factories))

    def read_for(
        self,
        observer: Observer,
        on_cut: Callable[[TopicPartition, int], object],
        on_failure: Callable[[BaseException], object],
    ) -> None:
        """Set whoever feeds these lanes, if the group member is elsewhere."""
        self._observer, self.on_cut, self.on_failure = observer, on_cut, on_failure

    async def open(self) -> None:
        """After an error it may be called again."""
        for name, factory in self._factories.items():
            if name not in self._opened:
                await factory.open()
                self._opened.add(name)

    async def close(self) -> None:
        for reader in self._readers.values():
            await reader.close()
        for factory in self._factories.values():
            await factory.close()

    async def try_write_audit(self) -> bool:
        """Each writes, also if another one cannot."""
        return all([await factory.try_write_audit() for factory in self._factories.values()])

    def on_resume(self) -> None:
        for factory in self._factories.values():
            factory.on_resume()

    # --- processors --------------------------------------------------------------------------------------------------

    async def build(
        self, starts: Mapping[TopicPartition, Start], builders: Mapping[str, BuildsProcessor] | None = None
    ) -> PartitionProcessor | SharedProcessor:
        """`builders` of the triggers that are here; without them, all triggers of the topic are."""
        builders = builders or {name: factory.build for name, factory in self._factories.items()}
        partition = self.shared(starts)
        if partition is None:
            return await builders[self.owner(starts)](starts)
        start = self._without_left(starts[partition])
        starts = {**starts, partition: start}
        here = self.begin(partition, start, builders)
        triggers = await self._triggers({name: builders[name] for name in here}, partition, starts)
        absent, floor = _absent(start, here), _floor(start)
        processor = SharedProcessor(partition, triggers, floor, absent, self._clock, self._absent_after)
        processor.on_cut = self.on_cut
        if self._consumer is not None and processor.end(partition) > start.offset >= 0:
            self._consumer.seek(partition, processor.end(partition))  # nobody here needs what is below
        return processor

    def shared(self, starts: Mapping[TopicPartition, Start]) -> TopicPartition | None:
        """The one of these partitions whose records go to several triggers; None for one of a retry topic."""
        topics = {factory.config.topic for factory in self._factories.values()}
        return next((partition for partition in starts if partition.topic in topics), None)

    def owner(self, starts: Mapping[TopicPartition, Start]) -> str:
        """The trigger whose retry partition this is."""
        [partition] = starts
        [name] = [name for name, factory in self._factories.items() if factory.config.retry == partition.topic]
        return name

    def begin(self, partition: TopicPartition, start: Start, only: Collection[str] | None = None) -> list[str]:
        """The triggers of a shared partition. Reports those that its commit names and that are not here."""
        names = [name for name, factory in self._factories.items() if factory.config.topic == partition.topic]
        names = [name for name in names if name not in self._left and (only is None or name in only)]
        self._room.check_absent(self.config.group_id, names, start.positions)
        self._report(partition, start, names)
        return names

    def joint_commit(self, partition: TopicPartition, start: Start, here: Collection[str]) -> JointCommit:
        return JointCommit(partition, _floor(start), _absent(start, here), self._clock, self._absent_after)

    async def starts_of(
        self, name: str, partition: TopicPartition, starts: Mapping[TopicPartition, Start]
    ) -> dict[TopicPartition, Start]:
        """Where a trigger of a shared partition begins; with the retry partition that is paired with it, if any."""
        factory = self._factories[name]
        paired = {p: s for p, s in starts.items() if p.topic == factory.config.retry and factory.source.keeps_order}
        return {**paired, partition: await self._begin(partition, starts[partition], factory)}

    async def _triggers(
        self,
        builders: Mapping[str, BuildsProcessor],
        partition: TopicPartition,
        starts: Mapping[TopicPartition, Start],
    ) -> list[Trigger]:
        triggers: list[Trigger] = []
        try:
            for name, build in builders.items():
                own = await self.starts_of(name, partition, starts)
                processor = await build(own)
                triggers.append(self._trigger(self._factories[name].config, processor, own[partition]))
        except BaseException:
            for trigger in triggers:  # all of them are built again
                await trigger.processor.drain(self._clock.monotonic())
            raise
        return triggers

    async def _begin(self, partition: TopicPartition, start: Start, factory: LaneFactory) -> Start:
        name, begin = factory.config.name, factory.config.begin
        if begin is not None and name not in start.positions and self._consumer is not None:
            if start.positions:
                offset = await late_offset(self._consumer, partition, name, begin)
                return Start(offset, topic_id=start.topic_id)
            if name not in self._reported:
                log.info("%s: from is not used for %s, because no commit names other triggers", partition, name)
        return start_of_trigger(start, name)

    def _without_left(self, start: Start) -> Start:
        return start._replace(positions={n: p for n, p in start.positions.items() if n not in self._left})

    def _trigger(self, config: ConsumerGroupConfig, processor: PartitionProcessor, start: Start) -> Trigger:
        limits = DetachLimits(config.detach_after.records, config.detach_after.time, config.detach_after.bytes)
        return Trigger(config.name, processor, limits, self._reader(config.name), start.leader_epoch, start.end_epoch)

    def _reader(self, name: str) -> DetachedReader:
        reader = self._readers.get(name)
        if reader is None:
            factory = self._factories[name]
            properties = factory.source.reader_properties | {
                "auto.offset.reset": "earliest",
                "fetch.buffer.bytes": _DETACHED_BUFFER,
            }
            reader = DetachedReader(
                name,
                lambda: AsyncConsumer(properties, clock=self._clock, observer=self._observer),
                self._fail,
            )
            self._readers[name] = reader
        return reader

    def _fail(self, error: BaseException) -> None:
        """Of the member that runs then: a reader may outlive the one that it was made for."""
        self.on_failure(error)

    def _report(self, partition: TopicPartition, start: Start, here: Sequence[str]) -> None:
        """Once for each trigger, not for each partition."""
        if not start.positions:
            return
        for name in sorted(start.positions.keys() - set(here) - self._reported):
            self._reported.add(name)
            log.warning(
                "%s: the commits of group %s name trigger %s, which this app does not have. They wait for it up to "
                "%g s (absentAfter), then go on; its position stays named. If it has another name now, carry its "
                "position over: multilane triggers rename %s %s NEW_NAME",
                *(partition, self.config.group_id, name, self._absent_after, self.config.group_id, name),
            )
        for name in sorted(set(here) - start.positions.keys() - self._reported):
            self._reported.add(name)
            if self._factories[name].config.begin is not None:
                continue  # `late_offset` says where
            log.info("%s: trigger %s is new: it begins at the group's position, %d", partition, name, start.offset)


def grouped(factories: Mapping[str, LaneFactory], config: AppConfig, clock: Clock) -> list[GroupLanes]:
    """The lanes of each group member: those of a consumer, or of the triggers that share it."""
    units = sharing.units_by_key(sharing.with_clusters((f.config for f in factories.values()), config.clusters))
    together = {name for unit in units.values() for name in unit}
    shared = [SharedLanes([factories[name] for name in unit], clock, key) for key, unit in units.items()]
    return [*shared, *(factory for name, factory in factories.items() if name not in together)]


def source_of(factories: Sequence[LaneFactory]) -> tuple[SharedSource, list[str]]:
    """What these read together, and a sentence for each setting in which they differ."""
    properties, differences = merged({f.config.name: f.source.member_properties for f in factories})
    reading, _ = merged({f.config.name: f.source.reader_properties for f in factories})
    keeps_order = any(factory.source.keeps_order for factory in factories)
    return SharedSource(keeps_order, topics_of(factories), properties, reading), differences


def start_of_trigger(start: Start, name: str) -> Start:
    """Where a trigger begins: at its named position; a new one at the group's. Without named positions, nobody knows
    whose the runs are, so nobody skips them."""
    position = start.positions.get(name)
    if position is None:
        return start._replace(runs=(), end_epoch=NO_EPOCH, positions={})
    epoch = start.leader_epoch if position.offset == start.offset else NO_EPOCH
    return start._replace(offset=position.offset, runs=position.runs, leader_epoch=epoch, positions={})


def _floor(start: Start) -> CommitPoint:
    return CommitPoint(start.offset, start.leader_epoch, (), start.end_epoch)


def _absent(start: Start, here: Collection[str]) -> dict[str, Position]:
    return {name: position for name, position in start.positions.items() if name not in here}


def topics_of(factories: Sequence[LaneFactory]) -> ReadTopics:
    """Retry topics first. A topic and the retry topics that are paired with it are read together."""
    topics = dict.fromkeys(factory.config.topic for factory in factories)
    retries = dict.fromkeys(factory.config.retry for factory in factories if factory.config.retry is not None)
    together = []
    for topic in topics:
        paired = [f.config.retry for f in factories if f.config.topic == topic and f.source.keeps_order]
        if paired:
            together.append((*(retry for retry in paired if retry is not None), topic))
    return ReadTopics((*retries, *topics), tuple(together), frozenset(retries))


class _EventsOfAll:
    """Each trigger hears of the partitions of its topics."""

    def __init__(self) -> None:
        self._handlers: dict[LaneFactory, PartitionHandler] = {}

    def add(self, factory: LaneFactory, handler: PartitionHandler) -> None:
        self._handlers[factory] = handler

    def remove(self, factory: LaneFactory) -> None:
        self._handlers.pop(factory, None)

    def of(self, factory: LaneFactory) -> PartitionHandler:
        return self._handlers[factory]

    async def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        for handler, own in self._each(partitions):
            await handler.assigned(own)

    async def revoked(self, partitions: frozenset[TopicPartition], *, is_lost: bool = False) -> None:
        for handler, own in self._each(partitions):
            await handler.revoked(own, is_lost=is_lost)

    def _each(self, partitions: frozenset[TopicPartition]) -> list[tuple[PartitionHandler, frozenset[TopicPartition]]]:
        return [
            (handler, frozenset(p for p in partitions if p.topic in factory.source.topics.names))
            for factory, handler in self._handlers.items()
        ]
