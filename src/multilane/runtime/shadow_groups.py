"""Publishes how far each trigger is as the committed offsets of a group of its own, which any lag tool can read.

Thread: loop; one task.

What is published was committed by the shared group before, so it is never ahead of it. A shadow group has no members.
One that has some, or offsets that were not written here, is left alone from then on, and so is one that this user may
not commit to: the app goes on without it. Owns a consumer for each shadow group, which reads nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.commit import completion_map
from multilane.errors import MultilaneError, OperationTimeout
from multilane.logs import logger
from multilane.types import Offset, OffsetAndMetadata, TopicPartition

log = logger(__name__)

PUBLISH_EVERY: Final = 5.0  # seconds
_MARK: Final = "multilane-shadow/1;"
_RETENTION: Final = "offsets.retention.minutes"
_USUAL_RETENTION: Final = 10_080  # minutes
_TIMEOUT: Final = 5.0

HeldPartitions = Callable[[], Collection[TopicPartition] | None]


class ShadowGroup:
    def __init__(self, name: str, mark: str, consumer: AsyncConsumer, held: HeldPartitions) -> None:
        self._name = name
        self._mark = mark
        self._consumer = consumer
        self._held = held
        self._noted: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}
        self._written_at = 0.0
        self._retention: float | None = None  # seconds
        self.is_over = False

    def note(self, partition: TopicPartition, offset: int) -> None:
        self._noted[partition] = offset

    async def publish(self, now: float) -> None:
        """Only what moved; everything again before the brokers would forget it. A partition that is no longer ours only
        moves forward, because its new owner may have published more."""
        if self.is_over:
            return
        held = frozenset(self._held() or ())
        due = {p: offset for p, offset in self._noted.items() if self._written.get(p) != offset}
        if not due and self._retention is not None and now - self._written_at >= self._retention / 2:
            due = {p: offset for p, offset in self._noted.items() if p in held}
        if not due:
            return
        try:
            refusal = await self._write(due, held)
        except MultilaneError as error:
            if error.retriable or isinstance(error, OperationTimeout):
                return
            refusal = str(error)
        if refusal:
            self._give_up(refusal)
            return
        self._written |= due
        self._written_at = now
        self._noted = {p: offset for p, offset in self._noted.items() if p in held}

    async def _write(self, due: Mapping[TopicPartition, int], held: Collection[TopicPartition]) -> str:
        """Why it is not written, if the group is somebody else's."""
        if self._retention is None:
            self._retention = await self._ask_retention()
        found = await self._consumer.committed(list(due), _TIMEOUT)
        before = {p: commit for p, commit in found.items() if commit is not None}
        foreign = sorted(p for p, commit in before.items() if commit.metadata != self._mark)
        if foreign:
            return f"it has offsets that this app has not written, for example of {foreign[0]}"
        commits = {
            p: OffsetAndMetadata(Offset(offset), metadata=self._mark)
            for p, offset in due.items()
            if p in held or p not in before or before[p].offset < offset
        }
        if commits:
            await self._consumer.commit(commits, _TIMEOUT)
        return ""

    async def _ask_retention(self) -> float:
        minutes = ""
        with suppress(MultilaneError):  # then the default is assumed
            minutes = (await self._consumer.coordinator_settings((_RETENTION,), _TIMEOUT)).get(_RETENTION, "")
        return 60.0 * (int(minutes) if minutes.isdecimal() else _USUAL_RETENTION)

    def _give_up(self, why: str) -> None:
        self.is_over = True
        log.warning(
            "shadow group %s: no more positions are published there: %s. The app goes on. Give the trigger a "
            "shadowGroup that nobody else uses and that this user may commit to (READ on the group)",
            *(self._name, why),
        )

    async def close(self) -> None:
        await self._consumer.close(_TIMEOUT)


class ShadowGroups:
    """Those of the triggers that run now: triggers may come and go."""

    def __init__(
        self,
        triggers: Callable[[], Mapping[str, tuple[str, str | None]]],
        make: Callable[[str], ShadowGroup | None],
        clock: Clock,
    ) -> None:
        """`triggers` returns the topic and the retry topic of each; `make` its shadow group, None if it wants none."""
        self._triggers = triggers
        self._make = make
        self._clock = clock
        self._groups: dict[str, ShadowGroup | None] = {}

    def note(self, commits: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The shared group has committed these."""
        triggers = self._triggers()
        for name in triggers.keys() - self._groups.keys():
            self._groups[name] = self._make(name)
        wanted = {name: group for name, group in self._groups.items() if group is not None and name in triggers}
        if not wanted:
            return
        for partition, commit in commits.items():
            positions = completion_map.read(commit.metadata, int(commit.offset)).positions
            for name, group in wanted.items():
                topic, retry = triggers[name]
                if partition.topic == topic and name in positions:
                    group.note(partition, positions[name].offset)
                elif partition.topic == retry:
                    group.note(partition, int(commit.offset))

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=PUBLISH_EVERY)
            await self._publish()

    async def _publish(self) -> None:
        triggers = self._triggers()
        for name, group in list(self._groups.items()):
            if group is not None:
                await group.publish(self._clock.monotonic())
            if name not in triggers:  # it has left
                del self._groups[name]
                await self._close([group])

    async def close(self) -> None:
        """Publish what was committed last."""
        try:
            await asyncio.wait_for(self._publish(), 2 * _TIMEOUT)
        except TimeoutError:
            log.warning("the last positions of triggers were not published in their shadow groups in time")
        finally:
            await self._close(self._groups.values())

    async def _close(self, groups: Iterable[ShadowGroup | None]) -> None:
        await asyncio.gather(*(group.close() for group in groups if group is not None))


def mark_of(group: str) -> str:
    return f"{_MARK}{group}"
